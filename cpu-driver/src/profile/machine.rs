//! How much memory this machine can give a device.

use std::fs;

/// Bytes that a device may hold without the system ending the process: seven
/// eighths of what the machine, or the control group, has. `None` where
/// neither can be read.
pub(super) fn memory() -> Option<u64> {
    let physical = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| total_of(&text));
    let group = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ]
    .iter()
    .filter_map(|path| fs::read_to_string(path).ok())
    .find_map(|text| text.trim().parse().ok());
    let least = physical.into_iter().chain(group).min()?;
    Some(least / 8 * 7)
}

fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_in_kibibytes() {
        let text = "Foo: 1 kB\nMemTotal:       16384 kB\nMemFree: 2 kB\n";
        assert_eq!(total_of(text), Some(16 << 20));
        assert_eq!(total_of("MemTotal: much"), None);
        assert_eq!(total_of(""), None);
    }
}
