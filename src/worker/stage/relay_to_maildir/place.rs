//! From an address to the folders of its Maildir. Pure: no file is looked at.
//!
//! A template is an absolute path in which `${local}`, `${domain}` and `${address}` stand for the recipient, at most one of
//! them in each component. What comes from an address is encoded: `/`, `%`, control bytes and a leading dot become `%XX`.
//! So no address adds, leaves out or climbs over a component, two addresses never share a Maildir because of the encoding
//! (it can be undone, and one variable a component leaves no doubt where it ends), and all lie under the fixed part of
//! the template. A component that would be empty or longer than a file name may be is refused. The domain is in lower
//! case, the local part as it is written.

use crate::mail::address::Address;
use std::fmt::Write;
use std::path::PathBuf;

/// NAME_MAX of every usual file system.
const MAX_COMPONENT: usize = 255;
/// PATH_MAX, less room for `/new/` and a file's name.
const MAX_PATH: usize = 4096 - 5 - MAX_COMPONENT - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variable {
    Local,
    Domain,
    Address,
}

/// The names that a template knows.
pub const VARIABLES: [&str; 3] = ["local", "domain", "address"];

#[derive(Debug)]
struct Component {
    before: String,
    variable: Option<Variable>,
    after: String,
}

/// A checked template.
#[derive(Debug)]
pub struct Template {
    /// The part that is the same for all: it has to be there, and is never made.
    base: PathBuf,
    /// The rest, at least one component: made on demand.
    components: Vec<Component>,
}

/// Where a Maildir is: `base`, which has to be there, and the folders below it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub base: PathBuf,
    pub folders: Vec<String>,
}

impl Place {
    pub fn path(&self) -> PathBuf {
        self.folders.iter().fold(self.base.clone(), |path, folder| path.join(folder))
    }
}

impl Template {
    /// The error is a clause about the template.
    pub fn parse(text: &str) -> Result<Template, String> {
        if !text.starts_with('/') {
            return Err("is no absolute path".into());
        }
        let parts = text.split('/').filter(|part| !part.is_empty());
        let mut components = parts.map(Component::parse).collect::<Result<Vec<_>, _>>()?;
        let first_variable = components.iter().position(|component| component.variable.is_some());
        // In a template without a variable the last folder is the Maildir, and made like any other.
        let fixed = first_variable.unwrap_or(components.len().saturating_sub(1));
        if fixed == 0 {
            return Err("needs a fixed folder in front, such as /var/mail".into());
        }
        let below = components.split_off(fixed);
        let base = components.iter().fold(PathBuf::from("/"), |path, component| path.join(&component.before));
        Ok(Template { base, components: below })
    }

    /// Whether a bare local name has a place only with a domain added.
    pub fn needs_domain(&self) -> bool {
        let needs = |variable| matches!(variable, Variable::Domain | Variable::Address);
        self.components.iter().any(|component| component.variable.is_some_and(needs))
    }

    /// The error is a clause about the address.
    pub fn place(&self, address: &Address) -> Result<Place, String> {
        let components = self.components.iter().map(|component| component.fill(address));
        let place = Place { base: self.base.clone(), folders: components.collect::<Result<_, _>>()? };
        if place.path().as_os_str().len() > MAX_PATH {
            return Err("it makes too long a path".into());
        }
        Ok(place)
    }
}

impl Component {
    fn parse(text: &str) -> Result<Component, String> {
        if text == "." || text == ".." {
            return Err(format!("has the component '{text}'"));
        }
        let literal =
            |before: &str| Component { before: before.into(), variable: None, after: String::new() };
        let Some((before, rest)) = text.split_once("${") else { return Ok(literal(text)) };
        let Some((name, after)) = rest.split_once('}') else {
            return Err(format!("has a '${{' without its '}}' in '{text}'"));
        };
        let variable = match name {
            "local" => Variable::Local,
            "domain" => Variable::Domain,
            "address" => Variable::Address,
            _ => return Err(format!("has the unknown variable '{name}'")),
        };
        if after.contains("${") {
            return Err(format!("has two variables in the component '{text}'; ${{address}} is both"));
        }
        Ok(Component { before: before.into(), variable: Some(variable), after: after.into() })
    }

    fn fill(&self, address: &Address) -> Result<String, String> {
        let Some(variable) = self.variable else { return Ok(self.before.clone()) };
        let domain = address.domain.to_lowercase();
        let missing = match variable {
            Variable::Local => address.local.is_empty(),
            Variable::Domain => domain.is_empty(),
            Variable::Address => address.local.is_empty() || domain.is_empty(),
        };
        if missing {
            return Err("it lacks a part that names a folder".into());
        }
        let value = match variable {
            Variable::Local => encode(&address.local),
            Variable::Domain => encode(&domain),
            Variable::Address => encode(&format!("{}@{domain}", address.local)),
        };
        let name = format!("{}{value}{}", self.before, self.after);
        if name.len() > MAX_COMPONENT {
            return Err("it makes too long a name for a folder".into());
        }
        Ok(name)
    }
}

fn encode(value: &str) -> String {
    let mut name = String::with_capacity(value.len());
    for (place, c) in value.char_indices() {
        if matches!(c, '/' | '%') || c.is_ascii_control() || (c == '.' && place == 0) {
            // One byte, as all of these are ASCII. Writing to a String cannot fail.
            let _ = write!(name, "%{:02X}", u32::from(c));
        } else {
            name.push(c);
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn address(local: &str, domain: &str) -> Address {
        Address { local: local.into(), domain: domain.into() }
    }

    fn path(template: &str, local: &str, domain: &str) -> Result<String, String> {
        let place = Template::parse(template)?.place(&address(local, domain))?;
        Ok(place.path().to_str().unwrap().to_owned())
    }

    #[test]
    fn ordinary_addresses_read_as_they_are() {
        let usual = "/var/mail/${domain}/${local}/";
        assert_eq!(path(usual, "Ann.B", "Example.ORG").unwrap(), "/var/mail/example.org/Ann.B");
        assert_eq!(path("/m/${address}/in", "a", "b").unwrap(), "/m/a@b/in");
        assert_eq!(path("//m//u-${local}.x", "a", "b").unwrap(), "/m/u-a.x");
        assert_eq!(path("/var/mail/all", "a", "").unwrap(), "/var/mail/all");
        assert_eq!(path("/m/${local}", "жук", "b").unwrap(), "/m/жук");
        assert_eq!(path("/m/${local}", "\"a b\"", "b").unwrap(), "/m/\"a b\"");
    }

    #[test]
    fn no_part_of_an_address_leaves_its_component() {
        let local = "/m/${local}/x";
        for (hostile, name) in [
            ("..", "%2E."),
            (".", "%2E"),
            (".ssh", "%2Essh"),
            ("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd"),
            ("/", "%2F"),
            ("/etc", "%2Fetc"),
            ("a/b", "a%2Fb"),
            ("a\0b", "a%00b"),
            ("a\nb\x7f", "a%0Ab%7F"),
            ("%2E", "%252E"),
            ("~", "~"),
            ("${domain}", "${domain}"),
        ] {
            assert_eq!(path(local, hostile, "d").unwrap(), format!("/m/{name}/x"), "{hostile:?}");
            let lower = name.replace("%252E", "%252e");
            assert_eq!(path("/m/${domain}/x", "l", hostile).unwrap(), format!("/m/{lower}/x"), "{hostile:?}");
        }
        assert_eq!(path("/m/.${local}", ".", "d").unwrap(), "/m/.%2E");
        assert_eq!(path("/m/${local}.", ".", "d").unwrap(), "/m/%2E.");
    }

    #[test]
    fn empty_and_over_long_names_are_refused() {
        assert!(path("/m/${local}", "", "d").is_err());
        assert!(path("/m/${domain}", "l", "").is_err());
        assert!(path("/m/${address}", "l", "").is_err());
        assert!(path("/m/${address}", "", "d").is_err());
        assert!(path("/m/${local}", &"a".repeat(255), "d").is_ok());
        assert!(path("/m/${local}", &"a".repeat(256), "d").is_err());
        assert!(path("/m/${local}", &"/".repeat(86), "d").is_err());
        let deep = format!("/m{}", "/${local}".repeat(20));
        assert!(path(&deep, &"a".repeat(250), "d").is_err());
    }

    #[test]
    fn different_addresses_have_different_places() {
        fn words(letters: &[char], length: usize) -> Vec<String> {
            let mut words = vec![String::new()];
            for from in 0..letters.len().pow(u32::try_from(length).unwrap()) {
                let mut rest = from;
                let word: String = (0..length)
                    .map(|_| {
                        let c = letters[rest % letters.len()];
                        rest /= letters.len();
                        c
                    })
                    .collect();
                words.extend((1..=length).map(|end| {
                    word[..word.char_indices().nth(end).map_or(word.len(), |(at, _)| at)].to_owned()
                }));
            }
            words.sort();
            words.dedup();
            words
        }
        let letters = ['a', '.', '/', '%', '2', 'E', 'F', '\0'];
        let template = Template::parse("/m/.x${local}.y").unwrap();
        let mut seen: BTreeMap<PathBuf, String> = BTreeMap::new();
        for local in words(&letters, 4).into_iter().filter(|word| !word.is_empty()) {
            let place = template.place(&address(&local, "d")).unwrap().path();
            assert_eq!(place.components().count(), 3, "{local:?}");
            assert_eq!(seen.insert(place, local.clone()), None, "{local:?}");
        }
        let both = Template::parse("/m/${domain}/${local}").unwrap();
        let mut seen = BTreeMap::new();
        for (local, domain) in
            [("a", "b"), ("a/b", "c"), ("a", "b/c"), ("a", "b%2Fc"), (".", "."), ("%2E", ".")]
        {
            assert_eq!(seen.insert(both.place(&address(local, domain)).unwrap().path(), local), None);
        }
    }

    // Req: S4
    #[test]
    fn bad_templates_are_refused() {
        for (template, word) in [
            ("", "absolute"),
            ("mail/${local}", "absolute"),
            ("~/Maildir", "absolute"),
            ("/", "fixed"),
            ("/${domain}/${local}", "fixed"),
            ("/x${local}", "fixed"),
            ("/mail", "fixed"),
            ("/m/../${local}", ".."),
            ("/m/${local}/.", "'.'"),
            ("/m/${local", "}"),
            ("/m/${user}", "user"),
            ("/m/${local}${domain}", "two"),
            ("/m/${local}@${domain}", "two"),
        ] {
            let error = Template::parse(template).unwrap_err();
            assert!(error.contains(word), "{template}: {error}");
        }
    }

    #[test]
    fn the_base_ends_before_the_first_variable() {
        let template = Template::parse("/var/mail/x/${domain}/in/${local}").unwrap();
        let place = template.place(&address("l", "d")).unwrap();
        assert_eq!((place.base, place.folders.join(",")), ("/var/mail/x".into(), "d,in,l".into()));
        let all = Template::parse("/var/mail/all").unwrap().place(&address("l", "")).unwrap();
        assert_eq!((all.base, all.folders.join(",")), ("/var/mail".into(), "all".into()));
        assert!(template.needs_domain());
        assert!(!Template::parse("/m/${local}").unwrap().needs_domain());
    }
}
