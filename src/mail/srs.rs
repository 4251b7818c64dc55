//! The sender rewriting scheme, as published by Meng Weng Wong and Shevek (libsrs2 and Mail::SRS speak it too): an
//! envelope sender of another domain is carried in a local part of ours, so that a bounce comes back here and is undone.
//!
//! `SRS0=HASH=DAY=DOMAIN=LOCAL@us` stands for LOCAL@DOMAIN; `SRS1=HASH=HOST=REST@us` for `SRS0` and REST at HOST, which
//! made it: however many hosts forward, an address holds no more than two of them. HASH is HMAC-SHA256 of the tag and of
//! all behind HASH in lower case, cut to 40 bits, in base32. DAY counts days modulo 1024, in base32.
//!
//! Invariants: letters may change their case on the way (ASCII only), nothing else may. LOCAL stands there as it was
//! written, quotes and all, and is put back so. The result parses as an address. A local part may be longer than the
//! 64 octets of RFC 5321 section 4.5.3.1.1, since what is carried often has nearly as many; the whole address may not be
//! longer than section 4.5.3.1.3 allows. Nothing is ever cut.

use super::address::{self, Address, AddressError, MAX_ADDRESS};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Base32 (RFC 4648 section 6): all of it survives a change of case.
const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// 40 bits, in 8 letters: each guess is a message that somebody has to send.
const HASH_OCTETS: usize = 5;
const HASH_LETTERS: usize = HASH_OCTETS * 8 / 5;

/// A stamp is two letters; those of 1024 days ago look like today's.
const DAYS: u64 = 1024;

/// The longest window in days. What lies outside of it is what tells an old stamp from a new one.
pub const MAX_WINDOW: u64 = 365;

/// So many days a stamp may lie in the future, as a clock may have been set back since.
const MAX_AHEAD: u64 = 1;

type Key = Hmac<Sha256>;

/// The scheme at one domain. It has no `Debug`: its keys belong in no log.
pub struct Srs {
    domain: String,
    signing: Key,
    /// Those that signed earlier and still verify.
    earlier: Vec<Key>,
    window_days: u64,
}

/// Why a sender cannot be rewritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForwardError {
    NotAnAddress(AddressError),
    /// What it would become.
    TooLong,
}

/// Why an address that looks like one of ours stands for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReverseError {
    /// No key of ours made its hash.
    Forged,
    /// It was made too long ago, or on a day to come.
    Expired,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    Srs0,
    Srs1,
}

impl Tag {
    fn name(self) -> &'static str {
        match self {
            Tag::Srs0 => "SRS0",
            Tag::Srs1 => "SRS1",
        }
    }
}

impl Srs {
    /// The first secret signs, all verify. The error is a clause.
    pub fn new(domain: &str, secrets: &[String], window_days: u64) -> Result<Srs, String> {
        assert!(window_days <= MAX_WINDOW, "a window of {window_days} days");
        let keys: Result<Vec<Key>, _> =
            secrets.iter().map(|secret| Key::new_from_slice(secret.as_bytes())).collect();
        let mut keys = keys.map_err(|error| error.to_string())?.into_iter();
        let signing = keys.next().ok_or("there is no secret")?;
        let domain = address::domain(domain).map_err(|error| error.0)?;
        Ok(Srs { domain, signing, earlier: keys.collect(), window_days })
    }

    /// The sender to use instead of `sender`, stamped with `day`. None where it stays: the null sender, a bare local name,
    /// a sender at our own domain.
    pub fn forward(&self, sender: &str, day: u64) -> Result<Option<String>, ForwardError> {
        if sender.is_empty() {
            return Ok(None);
        }
        let address = address::parse_long(sender).map_err(ForwardError::NotAnAddress)?;
        if address.domain.is_empty() || self.is_ours(&address.domain) {
            return Ok(None);
        }
        // As it was written, with a trailing dot if it has one.
        let domain = sender.strip_prefix(&address.local).and_then(|rest| rest.strip_prefix('@'));
        let brackets = || ForwardError::NotAnAddress(AddressError("stands in \"<\" and \">\"".into()));
        let domain = domain.ok_or_else(brackets)?;
        let (tag, signed) = match foreign(&address) {
            Some((None, rest)) => (Tag::Srs1, format!("{domain}={rest}")),
            Some((Some(host), rest)) => (Tag::Srs1, format!("{host}={rest}")),
            None => (Tag::Srs0, format!("{}={domain}={}", stamp(day), address.local)),
        };
        let hash = encode(&digest(&self.signing, tag, &signed).finalize().into_bytes()[..HASH_OCTETS]);
        let local = address::local_of(&format!("{}={hash}={signed}", tag.name()));
        let made = format!("{local}@{}", self.domain);
        if made.len() > MAX_ADDRESS { Err(ForwardError::TooLong) } else { Ok(Some(made)) }
    }

    /// The address that `recipient` stands for, seen on `day`. None where it stands for itself: another domain, or nothing
    /// of this scheme.
    pub fn reverse(&self, recipient: &str, day: u64) -> Result<Option<String>, ReverseError> {
        let Some((local, domain)) = recipient.rsplit_once('@') else { return Ok(None) };
        if !self.is_ours(domain) {
            return Ok(None);
        }
        let content = address::content(local);
        let Some((tag, rest)) = tagged(&content) else { return Ok(None) };
        let (hash, signed) = rest[1..].split_once('=').ok_or(ReverseError::Forged)?;
        if !self.is_signed(tag, hash, signed) {
            return Err(ReverseError::Forged);
        }
        let (first, rest) = signed.split_once('=').ok_or(ReverseError::Forged)?;
        match tag {
            Tag::Srs0 => {
                let made = unstamp(first).ok_or(ReverseError::Forged)?;
                let age = (day % DAYS + DAYS - made) % DAYS;
                if age > self.window_days && age < DAYS - MAX_AHEAD {
                    return Err(ReverseError::Expired);
                }
                let (domain, local) = rest.split_once('=').ok_or(ReverseError::Forged)?;
                Ok(Some(format!("{local}@{domain}")))
            }
            Tag::Srs1 => {
                let inner = format!("{}@{first}", address::local_of(&format!("SRS0{rest}")));
                // Made here in the first place, when other hosts have passed the message on and back to us.
                Ok(Some(self.reverse(&inner, day)?.unwrap_or(inner)))
            }
        }
    }

    fn is_ours(&self, domain: &str) -> bool {
        address::domain(domain).is_ok_and(|domain| domain == self.domain)
    }

    /// Whether one of our keys made that hash; in a time that tells nothing of the hash.
    fn is_signed(&self, tag: Tag, hash: &str, signed: &str) -> bool {
        let Some(octets) = decode(hash) else { return false };
        let fits = |key: &Key| digest(key, tag, signed).verify_truncated_left(&octets).is_ok();
        std::iter::once(&self.signing).chain(&self.earlier).any(fits)
    }
}

/// Whether a local part, as written, is one of this scheme, whoever made it: it may be longer than others.
pub fn is_rewritten(local: &str) -> bool {
    tagged(&address::content(local)).is_some()
}

/// Days since 1970 (UTC), of microseconds since then.
pub fn day(us: i64) -> u64 {
    u64::try_from(us).unwrap_or(0) / 86_400_000_000
}

/// What another host made, if it did: the first host where that is not the address's own, and what follows `SRS0` there.
/// Anything that is short of a part is an ordinary address.
fn foreign(address: &Address) -> Option<(Option<String>, String)> {
    let content = address::content(&address.local);
    // What would not be put back exactly is carried as it stands.
    if address::local_of(&content) != address.local {
        return None;
    }
    let (tag, rest) = tagged(&content)?;
    let is_whole = |rest: &str| {
        let parts: Vec<&str> = rest.splitn(4, '=').collect();
        parts.len() == 4 && parts.iter().all(|part| !part.is_empty())
    };
    match tag {
        Tag::Srs0 => is_whole(&rest[1..]).then(|| (None, rest.to_owned())),
        Tag::Srs1 => {
            let (_, kept) = rest[1..].split_once('=')?;
            let (host, rest) = kept.split_once('=')?;
            let inner = rest.strip_prefix(SEPARATORS)?;
            let is_made = is_whole(inner) && address::domain(host).is_ok();
            is_made.then(|| (Some(host.to_owned()), rest.to_owned()))
        }
    }
}

/// What may follow the tag.
const SEPARATORS: [char; 3] = ['=', '+', '-'];

/// The tag of a local part's content, and what follows it from the separator on.
fn tagged(content: &str) -> Option<(Tag, &str)> {
    let (name, rest) = content.split_at_checked(4)?;
    let tag = [Tag::Srs0, Tag::Srs1].into_iter().find(|tag| name.eq_ignore_ascii_case(tag.name()))?;
    rest.starts_with(SEPARATORS).then_some((tag, rest))
}

fn digest(key: &Key, tag: Tag, signed: &str) -> Key {
    key.clone().chain_update(tag.name()).chain_update(signed.to_ascii_lowercase())
}

fn stamp(day: u64) -> String {
    [day / 32, day].iter().map(|index| char::from(ALPHABET[(index % 32) as usize])).collect()
}

fn unstamp(text: &str) -> Option<u64> {
    let [high, low] = text.as_bytes() else { return None };
    Some(value(*high)? * 32 + value(*low)?)
}

fn value(letter: u8) -> Option<u64> {
    let place = ALPHABET.iter().position(|one| *one == letter.to_ascii_uppercase())?;
    u64::try_from(place).ok()
}

fn encode(octets: &[u8]) -> String {
    let bits = octets.iter().fold(0, |bits: u64, octet| bits << 8 | u64::from(*octet));
    (0..HASH_LETTERS).rev().map(|place| char::from(ALPHABET[(bits >> (5 * place) & 31) as usize])).collect()
}

fn decode(hash: &str) -> Option<[u8; HASH_OCTETS]> {
    if hash.len() != HASH_LETTERS {
        return None;
    }
    let bits = hash.bytes().try_fold(0, |bits, letter| Some(bits << 5 | value(letter)?))?;
    let octets = bits.to_be_bytes();
    octets.last_chunk().copied()
}

#[cfg(test)]
#[path = "srs_tests.rs"]
mod tests;
