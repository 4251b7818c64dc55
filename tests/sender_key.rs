//! The generated column `sender_key` (requirement F1) against an oracle that shares nothing with it: the standard library's
//! address parsers. Random and adversarial values go through it in bulk; none may raise.

mod harness;

use harness::Database;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, Ipv6Addr};

/// What F1 says, for one row.
fn oracle(state: &Value, mail_from: &str, rcpt_to: &[String]) -> String {
    let origin = |name: &str| state["origin"][name].as_str().filter(|text| !text.is_empty());
    if let Some(login) = origin("auth_user") {
        return format!("user:{}", bounded(login));
    }
    if let Some(address) = origin("client_ip") {
        return format!("ip:{}", bounded(&network(&address.to_ascii_lowercase())));
    }
    match mail_from {
        "" => format!("null:{}", bounded(&domain(rcpt_to.first().map_or("", String::as_str)))),
        _ => format!("from:{}", bounded(&domain(mail_from))),
    }
}

fn bounded(text: &str) -> String {
    if text.len() <= 200 {
        return text.to_owned();
    }
    let skipped = text.chars().count().saturating_sub(50);
    text.chars().skip(skipped).collect()
}

fn domain(address: &str) -> String {
    address.rsplit_once('@').map_or(String::new(), |(_, domain)| domain.to_ascii_lowercase())
}

fn network(address: &str) -> String {
    if address.parse::<Ipv4Addr>().is_ok() {
        return address.to_owned();
    }
    let Ok(v6) = address.parse::<Ipv6Addr>() else { return address.to_owned() };
    match v6.to_ipv4_mapped() {
        Some(v4) => v4.to_string(),
        None => format!("{}/64", Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64))),
    }
}

/// xorshift64*: the same values at every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() >> 33).expect("31 bits") % bound
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// Asks the server for all keys in one statement.
fn keys(db: &mut Database, states: &[Value], senders: &[String], recipients: &[Value]) -> Vec<String> {
    let query = "SELECT pepsi.sender_key(v.state, v.sender, ARRAY(SELECT jsonb_array_elements_text(v.rcpt)))
        FROM unnest($1::jsonb[], $2::text[], $3::jsonb[]) WITH ORDINALITY AS v (state, sender, rcpt, place) ORDER BY place";
    let rows = db.client.query(query, &[&states, &senders, &recipients]);
    rows.unwrap_or_else(|error| panic!("{error:?}")).iter().map(|row| row.get(0)).collect()
}

fn check_addresses(db: &mut Database, addresses: &[String]) {
    let states: Vec<Value> = addresses.iter().map(|ip| json!({"origin": {"client_ip": ip}})).collect();
    let senders = vec!["a@b".to_owned(); addresses.len()];
    let recipients = vec![json!(["c@d"]); addresses.len()];
    for (state, key) in states.iter().zip(keys(db, &states, &senders, &recipients)) {
        assert_eq!(key, oracle(state, "a@b", &["c@d".into()]), "{state}");
    }
}

// Req: F1
#[test]
fn every_short_sequence_of_address_parts_gives_the_key_that_the_standard_library_says() {
    let parts = ["", ":", "::", "1", "Ffff", "00000", "0", ".", "1.2.3.4", "256", "g", "\n"];
    let mut all = vec![String::new()];
    let mut last = all.clone();
    for _ in 0..4 {
        last = last
            .iter()
            .flat_map(|text| parts.iter().skip(1).map(move |part| format!("{text}{part}")))
            .collect();
        all.extend(last.iter().cloned());
    }
    let mut db = harness::database();
    check_addresses(&mut db, &all);
}

// Req: F1
#[test]
fn random_addresses_whole_and_broken_give_the_key_that_the_standard_library_says() {
    let mut random = Random(7);
    let mut all = Vec::new();
    for _ in 0..20_000 {
        let bits = u128::from(random.next()) << 64 | u128::from(random.next());
        // Runs of zeros, so that `::` is seen in all places.
        let mask =
            (0..8).fold(
                0u128,
                |mask, group| {
                    if random.below(2) == 0 { mask } else { mask | 0xffff << (16 * group) }
                },
            );
        let v6 = Ipv6Addr::from_bits(bits & mask);
        let groups = v6.segments().map(|group| format!("{group:x}"));
        let quad = Ipv4Addr::from_bits(u32::try_from(bits & 0xffff_ffff).expect("32 bits"));
        let whole = match random.below(6) {
            0 => v6.to_string(),
            1 => quad.to_string(),
            2 => format!("::ffff:{quad}"),
            3 => groups.join(":"),
            4 => format!("{}:{quad}", groups[..6].join(":")),
            _ => {
                let (head, tail) = (random.below(9), random.below(9));
                format!("{}::{}", groups[..head.min(8)].join(":"), groups[8 - tail.min(8)..].join(":"))
            }
        };
        let mut broken: Vec<char> = whole.chars().collect();
        for _ in 0..random.below(3) {
            let at = random.below(broken.len() + 1);
            let character =
                *random.pick(&[':', '.', '0', 'f', 'F', '9', 'g', ' ', '%', '/', 'é', '\n', '-', '@']);
            match random.below(3) {
                0 => broken.insert(at, character),
                1 if at < broken.len() => broken[at] = character,
                _ if at < broken.len() => drop(broken.remove(at)),
                _ => {}
            }
        }
        all.push(whole);
        all.push(broken.into_iter().collect());
    }
    let mut db = harness::database();
    check_addresses(&mut db, &all);
}

fn odd_texts() -> Vec<String> {
    let mut texts: Vec<String> = [
        "",
        "@",
        "@@",
        "a",
        "a@",
        "@b",
        "a@B.Example",
        "a@b@C",
        "\"a@b\"@c",
        "a@[192.0.2.1]",
        "ä@Ä.de",
        " a@b ",
        "a@b\n",
        "1:2",
        "::",
        "::1",
        "1.2.3.4",
        "01.2.3.4",
        "::ffff:1.2.3.4",
        "::FFFF:102:304",
        "2001:DB8::1",
        "fe80::1%eth0",
        "\u{1}",
        "\\",
        "'",
        "{}",
        "null",
    ]
    .map(String::from)
    .to_vec();
    texts.extend(["a", "é", "\u{10ffff}", ":", "1:", "1.", "@"].iter().flat_map(|part| {
        [
            part.repeat(50),
            part.repeat(67),
            part.repeat(201),
            part.repeat(10_000),
            format!("x@{}", part.repeat(3_000)),
        ]
    }));
    texts
}

// Req: F1
#[test]
fn odd_input_of_every_kind_gives_a_key_and_an_index_entry() {
    let mut values: Vec<Value> = odd_texts().into_iter().map(Value::from).collect();
    values.extend([json!(null), json!(1), json!(-1.5e300), json!(true), json!(["a"]), json!({"a": "b"})]);
    let mut states =
        vec![json!({}), json!({"origin": null}), json!({"origin": "x"}), json!({"origin": ["x"]})];
    states.push(json!({"origin": {}, "client_ip": "1.2.3.4"}));
    for value in &values {
        states.push(json!({"origin": {"auth_user": value}}));
        states.push(json!({"origin": {"client_ip": value}}));
        states.push(json!({"origin": {"client_ip": value, "auth_user": ""}}));
        states.push(json!({"origin": {"client_ip": value, "auth_user": value}}));
    }
    let texts = odd_texts();
    let mut cases: Vec<(Value, String, Vec<String>)> = Vec::new();
    for (index, state) in states.iter().enumerate() {
        let text = |step: usize| texts[(index * 7 + step) % texts.len()].clone();
        cases.push((state.clone(), text(0), vec![text(1), text(2)]));
        cases.push((state.clone(), String::new(), vec![text(3)]));
    }
    for text in &texts {
        cases.push((json!({}), text.clone(), vec![]));
        cases.push((json!({}), String::new(), vec![]));
        cases.push((json!({}), String::new(), vec![text.clone(), "x@y".into()]));
    }
    let mut db = harness::database();
    let insert = "INSERT INTO pepsi.workqueue (state, mail_from, rcpt_to, headers) VALUES ($1, $2, $3, '') RETURNING sender_key";
    for (state, mail_from, rcpt_to) in &cases {
        let row = db.client.query_one(insert, &[state, mail_from, rcpt_to]);
        let row = row.unwrap_or_else(|error| panic!("{state} {mail_from} {rcpt_to:?}: {error:?}"));
        assert_eq!(
            row.get::<_, String>(0),
            oracle(state, mail_from, rcpt_to),
            "{state} {mail_from} {rcpt_to:?}"
        );
    }
    assert_eq!(db.number("SELECT max(octet_length(sender_key))::bigint FROM pepsi.workqueue"), 205);
    // As the claim reads it: through the index.
    db.run("SET enable_seqscan = off; SET enable_bitmapscan = off");
    let count = i64::try_from(cases.len()).expect("a small number");
    let indexed = "SELECT count(*) FROM pepsi.workqueue WHERE status = 'pending' AND stage = 'init' AND sender_key >= ''";
    assert_eq!(db.number(indexed), count);
}

// Req: F1
#[test]
fn odd_lists_of_recipients_give_a_key() {
    let mut db = harness::database();
    let key =
        |db: &mut Database, list: &str| db.text(&format!("SELECT pepsi.sender_key('{{}}', '', {list})"));
    assert_eq!(key(&mut db, "'{}'"), "null:");
    assert_eq!(key(&mut db, "NULL"), "null:");
    assert_eq!(key(&mut db, "'{NULL,a@b}'"), "null:");
    assert_eq!(key(&mut db, "'{{a@b,c@d},{e@f,g@h}}'"), "null:");
    assert_eq!(key(&mut db, "'[0:1]={a@b,c@D}'"), "null:d");
    assert_eq!(db.text("SELECT pepsi.sender_key(NULL, NULL, NULL)"), "null:");
    for list in ["'{NULL}'", "'{{a@b,c@d},{e@f,g@h}}'"] {
        let insert =
            format!("INSERT INTO pepsi.workqueue (mail_from, rcpt_to, headers) VALUES ('', {list}, '')");
        assert!(db.client.batch_execute(&insert).is_err(), "{list} is no list of recipients");
    }
}
