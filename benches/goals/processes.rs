//! What the system says of a process and of its children.

use std::fs;

/// Kilobytes or a count: a field of /proc/PID/status.
pub fn status(pid: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("a living process");
    let field = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect("a field");
    field.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
}

pub fn descriptors(pid: u32) -> u64 {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("a process of ours").count() as u64
}

/// Seconds on a processor, to the nanosecond where the kernel tells, else in ticks of a hundredth.
pub fn processor_time(pid: u32) -> f64 {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let nanoseconds = read("schedstat").split(' ').next().and_then(|text| text.parse::<f64>().ok());
    if let Some(nanoseconds) = nanoseconds {
        return nanoseconds / 1e9;
    }
    let stat = read("stat");
    let fields: Vec<&str> = stat.rsplit_once(") ").expect("a stat line").1.split(' ').collect();
    // utime and stime, the 14th and 15th field of the line, of which the first two are cut off.
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().expect("a number") / 100.0).sum()
}

/// The children of a process, also dead ones that it did not wait for: their ids and states.
pub fn children(parent: u32) -> Vec<(u32, char)> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter_map(|id| Some((id, state_below(id, parent)?))).collect()
}

fn state_below(id: u32, parent: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    (fields.next()?.parse() == Ok(parent)).then_some(state)
}
