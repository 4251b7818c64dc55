//! Reading the configuration again while the dispatcher runs (requirements C2, C3): the file it was started with and the
//! overlay, what has changed in them, and what they make of the stage table.
//!
//! What only a restart brings into effect is said once, when it changes. What is wrong is told as such; what that leads
//! to is the machine's to decide.

use super::machine::{Fault, Reply};
use super::options::{self, Options};
use crate::host::{self, Unusable};
use crate::proto::conf::{Conf, ConfError};
use crate::proto::graph::Graph;
use crate::{Level, config, exit, log};
use std::path::PathBuf;

/// The most lines about what is wrong or odd, of one reading.
const MOST_LINES: usize = 20;

/// Where the configuration is, and what it said when it was last read.
pub struct Configuration {
    path: PathBuf,
    /// File and overlay.
    conf: Conf,
    /// The same as the last reading found it, which did not take it: nobody had said that it has changed.
    seen: Option<Conf>,
    /// In force until the end.
    options: Options,
}

impl Configuration {
    pub fn new(path: PathBuf, conf: Conf, options: Options) -> Configuration {
        Configuration { path, conf, seen: None, options }
    }

    /// Reads the file, and lays these rows of the overlay over it. Unless somebody `asked` for it the file may be half
    /// written: what has changed is taken when two readings in a row find the same, and what does not parse is no end.
    pub fn reread(&mut self, rows: &[(String, String, String)], asked: bool) -> Reply {
        let seen = self.seen.take();
        let (conf, graph) = match self.read(rows) {
            Ok(read) => read,
            Err(Reply::Malformed { errors, .. }) if !asked => {
                return Reply::Fault(Fault::Refused(errors.join("; ")));
            }
            Err(reply) => return reply,
        };
        let changes = self.changes(&conf);
        let is_sure = asked || seen.is_some_and(|seen| conf.changed(&seen).is_empty());
        if changes.is_some() && !is_sure {
            self.seen = Some(conf);
            let text = "it has changed, though nobody said so, and is taken if it is found like this again";
            return Reply::Fault(Fault::Refused(text.to_owned()));
        }
        if changes.is_some() {
            warn_of(options::unknown(&conf), &conf, &graph);
            self.warn_of_what_needs_a_restart(&conf);
            self.conf = conf;
        }
        Reply::Config { stages: options::stage_specs(&graph), changes }
    }

    fn read(&self, rows: &[(String, String, String)]) -> Result<(Conf, Graph), Reply> {
        let malformed = |errors| Reply::Malformed { code: exit::CONFIG, errors };
        let mut conf = host::read_config(&self.path).map_err(|error| match error {
            Unusable::Unreadable(error) => Reply::Fault(Fault::Refused(error)),
            Unusable::Malformed(error) => malformed(vec![error]),
        })?;
        config::overlay(&mut conf, rows);
        let graph = Graph::parse(&conf).map_err(|errors| malformed(lines(&errors)))?;
        Ok((conf, graph))
    }

    /// In words; None: nothing.
    fn changes(&self, conf: &Conf) -> Option<String> {
        let (mut added, mut edited, mut removed, mut others) = (vec![], vec![], vec![], vec![]);
        let changed = conf.changed(&self.conf);
        for name in &changed {
            let (list, name) = match name.strip_prefix("stage-") {
                None => (&mut others, *name),
                Some(stage) if self.conf.section(name).is_none() => (&mut added, stage),
                Some(stage) if conf.section(name).is_none() => (&mut removed, stage),
                Some(stage) => (&mut edited, stage),
            };
            list.push(name);
        }
        let lists =
            [("added", added), ("edited", edited), ("removed", removed), ("changed besides stages", others)];
        let lists = lists.iter().filter(|(_, names)| !names.is_empty());
        let parts: Vec<String> = lists.map(|(what, names)| format!("{what} {}", names.join(", "))).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// The values in force, those read before and those read now: one line when the last two differ, and the first too.
    fn warn_of_what_needs_a_restart(&self, conf: &Conf) {
        let now = Options::read(conf);
        if Options::read(&self.conf) == now {
            return;
        }
        match now {
            Ok(now) if now == self.options => {}
            Ok(_) => {
                let text =
                    "[pepsi-dispatch] or the database has changed, which takes effect at the next start";
                log(Level::Warning, "", text, &[]);
            }
            Err(errors) => {
                for error in lines(&errors) {
                    let text = format!("{error}; the next start would fail");
                    log(Level::Warning, "", &text, &[]);
                }
            }
        }
    }
}

/// What is odd about the stages of file and overlay, behind what else is odd.
pub fn warn_of(mut odd: Vec<ConfError>, conf: &Conf, graph: &Graph) {
    odd.extend(graph.warnings.iter().cloned());
    odd.extend(options::missing(conf, graph));
    warn(&odd);
    if graph.stages.is_empty() {
        let text = "the configuration has no [stage-NAME] section: mail will wait and nothing else";
        log(Level::Warning, "", text, &[]);
    }
}

/// One line for each of the first ones, and one for the rest: whoever writes the overlay must not flood the log.
pub fn lines(errors: &[ConfError]) -> Vec<String> {
    let mut lines: Vec<String> = errors.iter().take(MOST_LINES).map(ConfError::to_string).collect();
    if errors.len() > MOST_LINES {
        lines.push(format!("and {} more like these", errors.len() - MOST_LINES));
    }
    lines
}

pub fn warn(warnings: &[ConfError]) {
    lines(warnings).iter().for_each(|warning| log(Level::Warning, "", warning, &[]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::machine::StageSpec;

    /// A file of a test, with its configuration.
    struct Test {
        configuration: Configuration,
    }

    impl Test {
        fn new(name: &str, text: &str) -> Test {
            let path = std::env::temp_dir().join(format!("pepsi-reread-{}-{name}", std::process::id()));
            std::fs::write(&path, text).unwrap();
            let conf = host::read_config(&path).ok().unwrap();
            let options = Options::read(&conf).unwrap();
            Test { configuration: Configuration::new(path, conf, options) }
        }

        fn write(&self, text: &str) {
            std::fs::write(&self.configuration.path, text).unwrap();
        }

        fn read(&mut self, rows: &[(&str, &str, &str)]) -> (Vec<StageSpec>, Option<String>) {
            match self.reply(rows) {
                Reply::Config { stages, changes } => (stages, changes),
                other => panic!("{other:?}"),
            }
        }

        fn reply(&mut self, rows: &[(&str, &str, &str)]) -> Reply {
            self.configuration.reread(&Test::own(rows), true)
        }

        fn unasked(&mut self, rows: &[(&str, &str, &str)]) -> Reply {
            self.configuration.reread(&Test::own(rows), false)
        }

        fn own(rows: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
            let own = |part: &&str| (*part).to_owned();
            rows.iter().map(|(a, b, c)| (own(a), own(b), own(c))).collect()
        }
    }

    impl Drop for Test {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.configuration.path);
        }
    }

    #[test]
    fn a_flood_of_errors_is_some_lines_and_their_number() {
        let mut test = Test::new("flood", "[stage-a]\nPROGRAM = one\n");
        let names: Vec<String> = (0..5_000).map(|number| format!("stage-{number}")).collect();
        let rows: Vec<_> = names.iter().map(|name| (name.as_str(), "PARALLELISM", "0")).collect();
        let Reply::Malformed { errors, .. } = test.reply(&rows) else { panic!("it parses") };
        assert_eq!(errors.len(), MOST_LINES + 1);
        assert!(errors[MOST_LINES].ends_with(" more like these"), "{}", errors[MOST_LINES]);
        let error = ConfError { file: "f".to_owned(), line: 1, message: "odd".to_owned() };
        assert_eq!(lines(&vec![error; MOST_LINES]), vec!["f:1: odd"; MOST_LINES]);
    }

    // Req: C2
    #[test]
    fn file_and_overlay_are_both_read_again_and_what_changed_is_said() {
        let mut test = Test::new("both", "[stage-a]\nPROGRAM = one\n[stage-b]\nPROGRAM = one\n");
        assert_eq!(test.read(&[]).1, None);
        test.write("# moved\n\n[stage-b]\nPROGRAM = one\n[stage-a]\nprogram = \"one\"\n");
        assert_eq!(test.read(&[]).1, None, "only places have changed");
        test.write("[stage-b]\nPROGRAM = two\nOWN = x\n[stage-c]\nPROGRAM = one\n[paths]\nX = y\n");
        let (stages, changes) = test.read(&[("stage-d", "PROGRAM", "four"), ("Stage-D", "parallelism", "9")]);
        assert_eq!(changes.as_deref(), Some("added c, d; edited b; removed a; changed besides stages paths"));
        let seen: Vec<_> =
            stages.iter().map(|s| (s.name.as_str(), s.program.as_str(), s.parallelism)).collect();
        assert_eq!(seen, [("b", "two", 4), ("c", "one", 4), ("d", "four", 9)]);
        assert_eq!(test.read(&[("stage-d", "PROGRAM", "four"), ("stage-d", "PARALLELISM", "9")]).1, None);
        assert_eq!(test.read(&[]).1.as_deref(), Some("removed d"));
        test.write("[stage-b]\nPROGRAM = two\nOWN = z\n[stage-c]\nPROGRAM = one\n[paths]\nX = y\n");
        assert_eq!(test.read(&[]).1.as_deref(), Some("edited b"), "an option that only its worker reads");
    }

    // Req: C2
    #[test]
    fn a_file_of_which_nobody_spoke_is_taken_when_it_is_found_twice() {
        let whole = "[stage-a]\nPROGRAM = one\n[stage-b]\nPROGRAM = one\n";
        let mut test = Test::new("unasked", whole);
        let is_put_off = |reply: Reply| matches!(reply, Reply::Fault(Fault::Refused(_)));
        for half in ["", "[stage-a", "[stage-a", "[stage-a]\n", "[stage-a]\nPROGRAM = o\n"] {
            test.write(half);
            assert!(is_put_off(test.unasked(&[])), "{half:?}");
        }
        test.write(whole);
        assert!(matches!(test.unasked(&[]), Reply::Config { changes: None, .. }));
        test.write("");
        assert!(is_put_off(test.unasked(&[])));
        test.write("[stage-a\n");
        assert!(is_put_off(test.unasked(&[])));
        test.write("");
        assert!(is_put_off(test.unasked(&[])), "the reading before found something else");
        let Reply::Config { stages, changes } = test.unasked(&[]) else { panic!("it is the same") };
        assert_eq!((stages.len(), changes.as_deref()), (0, Some("removed a, b")));
        let rows = [("stage-c", "PROGRAM", "one")];
        assert!(is_put_off(test.unasked(&rows)));
        assert!(matches!(test.unasked(&rows), Reply::Config { changes: Some(_), .. }));
        test.write(whole);
        assert_eq!(test.read(&[]).1.as_deref(), Some("added a, b; removed c"), "asked for");
    }

    // Req: C3, CLI3
    #[test]
    fn what_does_not_parse_and_what_cannot_be_read_are_two_things() {
        let good = "[stage-a]\nPROGRAM = one\n";
        let mut test = Test::new("bad", good);
        let errors = |reply: Reply| match reply {
            Reply::Malformed { code: exit::CONFIG, errors } => errors,
            other => panic!("{other:?}"),
        };
        let rows = [("stage-a", "PARALLELISM", "0"), ("stage-b", "MAX_RUNTIME", "soon")];
        let found = errors(test.reply(&rows));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.iter().all(|error| error.starts_with("config_override:0: [stage-")), "{found:?}");
        test.write("[stage-a\n");
        assert!(errors(test.reply(&[]))[0].contains(":1: "));
        test.write("[stage-a]\nPROGRAM = \u{e9}\n");
        assert!(test.read(&[]).1.is_some());
        std::fs::remove_file(&test.configuration.path).unwrap();
        assert!(
            matches!(test.reply(&[]), Reply::Fault(Fault::Refused(error)) if error.contains("pepsi-reread"))
        );
        test.write(good);
        assert!(test.read(&[]).1.is_some());
    }

    #[test]
    fn what_needs_a_restart_does_not_stop_a_reload() {
        let mut test = Test::new("fixed", "[stage-a]\nPROGRAM = one\n");
        test.write("[pepsi-dispatch]\nPOLL_INTERVAL = never\n[stage-a]\nPROGRAM = two\n");
        let (stages, changes) = test.read(&[]);
        assert_eq!(stages[0].program, "two");
        assert_eq!(changes.as_deref(), Some("edited a; changed besides stages pepsi-dispatch"));
    }
}
