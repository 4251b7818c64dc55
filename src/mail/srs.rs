//! The sender rewriting scheme: SRS0 and SRS1 addresses, made and undone.
//!
//! `SRS0=HASH=DAY=DOMAIN=LOCAL@us` and `SRS1=HASH=HOST=REST@us`, where `SRS0` and REST make the address at HOST. HASH is
//! HMAC-SHA256 of what follows it, in lower case, cut to 40 bits: hosts on the way may change the case of letters. DAY
//! counts days modulo 1024. What does not fit the length limits, or would need quotes, is refused and never cut.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const HASH_LEN: usize = 8;
const DAYS: u64 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SrsError {
    NotSrs,
    Malformed,
    BadHash,
    Expired,
    TooLong,
    Quoted,
}

/// The first secret signs, all verify.
pub struct Srs<'a> {
    pub domain: &'a str,
    pub secrets: &'a [String],
    pub separator: char,
    pub window_days: u64,
}

impl Srs<'_> {
    /// The sender to use instead; the null sender stays.
    pub fn forward(&self, sender: &str, day: u64) -> Result<String, SrsError> {
        if sender.is_empty() {
            return Ok(String::new());
        }
        let (local, domain) = sender.rsplit_once('@').ok_or(SrsError::Malformed)?;
        if local.is_empty() || domain.is_empty() || domain.contains('=') {
            return Err(SrsError::Malformed);
        }
        if local.contains(['"', '@', '\\']) || local.contains(char::is_whitespace) {
            return Err(SrsError::Quoted);
        }
        let (tag, signed) = match tagged(local) {
            Some(('0', rest)) => ("SRS1", format!("{domain}={rest}")),
            Some((_, rest)) => {
                let kept = rest[1..].split_once('=').ok_or(SrsError::Malformed)?.1;
                ("SRS1", kept.to_owned())
            }
            None => ("SRS0", format!("{}={domain}={local}", stamp(day))),
        };
        let secret = self.secrets.first().ok_or(SrsError::BadHash)?;
        let hash = hash(secret, tag, &signed);
        let made = format!("{tag}{}{hash}={signed}", self.separator);
        if made.len() > 64 || made.len() + 1 + self.domain.len() > 254 {
            return Err(SrsError::TooLong);
        }
        Ok(format!("{made}@{}", self.domain))
    }

    /// The address that one of ours stands for.
    pub fn reverse(&self, address: &str, day: u64) -> Result<String, SrsError> {
        let (local, domain) = address.rsplit_once('@').ok_or(SrsError::NotSrs)?;
        if !domain.eq_ignore_ascii_case(self.domain) {
            return Err(SrsError::NotSrs);
        }
        let (kind, rest) = tagged(local).ok_or(SrsError::NotSrs)?;
        let (given, signed) = rest[1..].split_once('=').ok_or(SrsError::Malformed)?;
        let tag = if kind == '0' { "SRS0" } else { "SRS1" };
        let given = given.to_ascii_lowercase();
        let fits = |secret: &String| same(hash(secret, tag, signed).as_bytes(), given.as_bytes());
        if !self.secrets.iter().any(fits) {
            return Err(SrsError::BadHash);
        }
        let (first, rest) = signed.split_once('=').ok_or(SrsError::Malformed)?;
        if kind == '1' {
            return Ok(format!("SRS0{rest}@{first}"));
        }
        let made = unstamp(first).ok_or(SrsError::Malformed)?;
        if (day % DAYS + DAYS - made) % DAYS > self.window_days {
            return Err(SrsError::Expired);
        }
        let (domain, local) = rest.split_once('=').ok_or(SrsError::Malformed)?;
        Ok(format!("{local}@{domain}"))
    }
}

/// The digit of an SRS local part, and what follows it from the separator on.
fn tagged(local: &str) -> Option<(char, &str)> {
    let (tag, rest) = local.split_at_checked(4)?;
    let kind = tag.chars().last().filter(|kind| matches!(kind, '0' | '1'))?;
    (tag[..3].eq_ignore_ascii_case("SRS") && rest.starts_with(['=', '+', '-'])).then_some((kind, rest))
}

fn stamp(day: u64) -> String {
    let letter = |index: u64| char::from(ALPHABET[(index % 32) as usize]).to_ascii_uppercase();
    [letter(day / 32), letter(day)].iter().collect()
}

fn unstamp(text: &str) -> Option<u64> {
    let place = |c: u8| ALPHABET.iter().position(|a| *a == c.to_ascii_lowercase()).map(|place| place as u64);
    let [high, low] = text.as_bytes() else { return None };
    Some(place(*high)? * 32 + place(*low)?)
}

fn hash(secret: &str, tag: &str, signed: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes a key of any length");
    mac.update(tag.as_bytes());
    mac.update(signed.to_lowercase().as_bytes());
    let bits =
        mac.finalize().into_bytes().iter().take(5).fold(0u64, |bits, octet| bits << 8 | u64::from(*octet));
    (0..HASH_LEN).rev().map(|place| char::from(ALPHABET[(bits >> (5 * place) & 31) as usize])).collect()
}

/// In a time that does not tell where they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_there_and_back() {
        let (new, both) = (["new".to_owned()], ["newer".to_owned(), "new".to_owned()]);
        let srs = Srs { domain: "f.example", secrets: &new, separator: '=', window_days: 21 };
        assert_eq!(srs.forward("", 5).unwrap(), "");
        for sender in ["a@b.example", "a=b+c-d@b.example", "SRS0+x=AA=c=d@b.example", "srs0-x@b.example"] {
            let made = srs.forward(sender, 1020).unwrap();
            let back = srs.reverse(&made, 1030).unwrap();
            assert!(back.eq_ignore_ascii_case(sender), "{sender} {made} {back}");
            assert!(srs.reverse(&made.to_uppercase(), 1030).unwrap().eq_ignore_ascii_case(sender));
            let rotated = Srs { secrets: &both, ..srs };
            assert_eq!(rotated.reverse(&made, 1030).unwrap(), back);
        }
        let made = srs.forward("a@b.example", 1020).unwrap();
        assert_eq!(srs.reverse(&made, 1042), Err(SrsError::Expired));
        assert_eq!(srs.reverse(&made.replace("=a@", "=c@"), 1020), Err(SrsError::BadHash));
        assert_eq!(srs.reverse("a@f.example", 0), Err(SrsError::NotSrs));
        assert_eq!(srs.reverse("SRS0=é@f.example", 0), Err(SrsError::Malformed));
        assert_eq!(srs.forward("\"a@b\"@c", 0), Err(SrsError::Quoted));
        assert_eq!(srs.forward(&format!("{}@c", "x".repeat(64)), 0), Err(SrsError::TooLong));
    }
}
