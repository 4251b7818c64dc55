//! Tests of the search for the configuration, of reading files, and of names.

use super::*;

#[test]
fn a_host_name_is_plain_or_none() {
    assert_eq!(host_name(b" mail.example.org. "), Some("mail.example.org".into()));
    for bad in [&b""[..], b".", b"a b", b"a\x01b", b"caf\xc3\xa9", b"\xff", b".example", b"a@b"] {
        assert_eq!(host_name(bad), None, "{bad:?}");
    }
    assert_eq!(host_name(&[b'a'; 254]), None);
}

#[test]
fn a_user_name_is_found_by_its_uid_alone() {
    let passwd = b"root:x:0:0:root:/root:/bin/sh\nbad:x:10\nann:x:1000:0::/home/ann:/bin/sh\na\x01b:x:7:7:::\n:x:8:8:::\n";
    assert_eq!(passwd_name(passwd, 0), Some("root".into()));
    assert_eq!(passwd_name(passwd, 1000), Some("ann".into()));
    for uid in [1, 7, 8, 100] {
        assert_eq!(passwd_name(passwd, uid), None, "{uid}");
    }
}

#[test]
fn a_set_id_process_is_told_by_its_numbers() {
    assert!(!is_set_id_status(b"Name:\tx 1\nUid:\t5\t5\t5\t5\nGid:\t6\t6\t6\t6\n"));
    assert!(is_set_id_status(b"Uid:\t1000\t0\t0\t0\nGid:\t6\t6\t6\t6\n"));
    assert!(is_set_id_status(b"Uid:\t5\t5\t5\t5\nGid:\t6\t7\t7\t7\n"));
}

// Req: CLI5
#[test]
fn a_search_that_finds_nothing_names_the_places() {
    let both = places(Some(Path::new("/home/ann")));
    assert_eq!(both, [Path::new("/home/ann/.config/pepsi.conf"), Path::new("/etc/pepsi/pepsi.conf")]);
    assert_eq!(places(None), both[1..]);
    assert_eq!(places(Some(Path::new("relative"))), both[1..]);
    let nowhere = [PathBuf::from("/nonexistent/a"), PathBuf::from("/dev/null/b")];
    let error = search(&nowhere).unwrap_err();
    assert!(error.ends_with("write /nonexistent/a or /dev/null/b"), "{error}");
    assert_eq!(search(&[nowhere[0].clone(), PathBuf::from("/dev/null")]), Ok(PathBuf::from("/dev/null")));
}

// Req: CLI5
#[test]
fn an_unreadable_file_is_named() {
    let missing = load_config(Some(Path::new("/nonexistent/x.conf"))).err().unwrap();
    assert!(missing.contains("/nonexistent/x.conf"), "{missing}");
    let folder = load_config(Some(Path::new("/"))).err().unwrap();
    assert!(folder.contains("directory"), "{folder}");
    assert!(load_config(Some(Path::new("/dev/zero"))).err().unwrap().contains("no regular file"));
    assert!(load_config(Some(Path::new(""))).err().unwrap().contains("empty"));
}

// Req: C2
#[test]
fn a_file_that_would_keep_its_reader_waiting_is_refused() {
    let folder = std::env::temp_dir().join(format!("pepsi-host-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (fifo, file) = (folder.join("fifo"), folder.join("file"));
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    std::fs::write(&file, "@inline@ fifo\n").unwrap();
    let refused = read_config(&fifo).err();
    assert!(matches!(refused, Some(Unusable::Unreadable(error)) if error.contains("no regular file")));
    let refused = read_config(&file).err();
    assert!(matches!(refused, Some(Unusable::Malformed(error)) if error.contains("no regular file")));
    std::fs::remove_dir_all(&folder).unwrap();
}
