//! Tests of header fields: found and unfolded, odd lines passed over, any bytes answered, in linear time.

use super::*;
use std::time::{Duration, Instant};

fn names(block: &[u8]) -> Vec<&[u8]> {
    fields(block).iter().map(|field| field.name).collect()
}

#[test]
fn fields_are_parts_of_the_block() {
    let block = b"Received: a\r\n\tb\r\n c\r\nTo:x@y\r\nSubject :\t odd\r\nEmpty:\r\nlast: no end";
    let found = fields(block);
    assert_eq!(names(block), [&b"Received"[..], b"To", b"Subject", b"Empty", b"last"]);
    assert_eq!(found[0].value, b" a\r\n\tb\r\n c");
    assert_eq!(found[0].whole, b"Received: a\r\n\tb\r\n c\r\n");
    assert_eq!(found[2].value, b"\t odd");
    assert_eq!(found[3].value, b"");
    assert_eq!(found[4].whole, b"last: no end");
    let whole: Vec<u8> = found.iter().flat_map(|field| field.whole.to_vec()).collect();
    assert_eq!(whole, block, "nothing but fields");
}

#[test]
fn lines_that_are_no_field_are_passed_over() {
    assert_eq!(
        names(b"From x@y Mon\r\nA: 1\r\nnonsense\r\n folded: on\r\nB: 2\r\n: none\r\nC\0: 3\r\n"),
        [b"A", b"B"]
    );
    assert_eq!(names(b" folded: first\r\nA: 1\r\n"), [b"A"]);
    assert_eq!(names("Näme: 1\r\nA: 1\r\n".as_bytes()), [b"A"]);
    assert_eq!(names(b"A : 1\nB\t: 2\nC x: 3\n"), [b"A", b"B"]);
    assert!(names(b"").is_empty());
    assert!(names(b"\r\n").is_empty());
    assert!(names(b"no colon").is_empty());
}

#[test]
fn an_empty_line_ends_the_block() {
    assert_eq!(names(b"A: 1\n\nB: 2\n"), [b"A"]);
    assert_eq!(names(b"A: 1\r\n\nB: 2\n"), [b"A"]);
    assert_eq!(names(b"A: 1\r\n\r\nB: 2\n"), [b"A"]);
    assert_eq!(names(b"A: 1\n \nB: 2\n"), [b"A", b"B"], "a blank line is a fold");
    assert_eq!(names(b"A: 1\r\rB: 2\r\nC: 3"), [b"A", b"C"], "a bare CR ends no line");
}

#[test]
fn text_is_unfolded_decoded_and_clean() {
    let block = b"SUBJECT:  one\r\n two\r\n\t=?utf-8?q?gr=C3=BCn?= \r\n =?iso-8859-1?b?/A==?=  \r\nsubject: second\r\n\
                  X: a\0b\xff\x07c\rd\r\nY: =?utf-8?q?a=0D=0ABcc:_x=00y?=\r\nZ:\r\n";
    assert_eq!(
        text(block, "Subject").as_deref(),
        Some("one two\tgrünü").map(|s| s.replace('\t', " ")).as_deref()
    );
    assert_eq!(text(block, "x").as_deref(), Some("ab\u{fffd} c d"));
    assert_eq!(text(block, "Y").as_deref(), Some("a  Bcc: xy"));
    assert_eq!(text(block, "z").as_deref(), Some(""));
    assert_eq!(text(block, "absent"), None);
    assert_eq!(text(block, ""), None);
}

/// Every block of up to seven tokens: slices lie in order within the block, and what is between them is no field.
#[test]
fn every_short_block_is_answered() {
    const TOKENS: &[&[u8]] = &[b"a", b":", b" ", b"\r", b"\n", b"\xff"];
    fn grow(block: &mut Vec<u8>, left: usize) {
        let mut end = 0;
        for field in fields(block) {
            let at = field.whole.as_ptr().addr() - block.as_ptr().addr();
            assert!(at >= end && (at == 0 || block[at - 1] == b'\n'), "{block:?}");
            end = at + field.whole.len();
            assert!(field.whole.starts_with(field.name) && !field.name.is_empty());
            assert!(field.whole.ends_with(b"\n") || end == block.len());
            let shown = text(field.whole, &String::from_utf8_lossy(field.name)).unwrap();
            assert!(!shown.chars().any(char::is_control));
        }
        if left > 0 {
            for token in TOKENS {
                let length = block.len();
                block.extend_from_slice(token);
                grow(block, left - 1);
                block.truncate(length);
            }
        }
    }
    grow(&mut Vec::new(), 7);
}

/// Shapes that a careless parser takes quadratic time for; a large block of each stays far within the deadline.
#[test]
fn large_blocks_take_linear_time() {
    let size = 1 << 18;
    let start = Instant::now();
    for piece in
        ["a\r\n ", " \r\n ", "=?utf-8?q?a?= ", "=?", "=?utf-8?q?", "=?utf-8?b?", "a:\r\n", "x", "\r", "a\r\n"]
    {
        let block = format!("A: {}", piece.repeat(size / piece.len()));
        assert!(text(block.as_bytes(), "A").is_some());
        assert!(!fields(block.as_bytes()).is_empty());
        assert!(text(piece.repeat(size / piece.len()).as_bytes(), "Absent").is_none());
    }
    let folded = format!("A: {}", "word\r\n ".repeat((1 << 20) / 7));
    assert_eq!(text(folded.as_bytes(), "A").map(|text| text.len()), Some((1 << 20) / 7 * 5 - 1));
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}
