//! Findings as XML (`--xml --save FILE`), with compute-sanitizer's element
//! names where it has them.

use std::fmt::Write;

use super::finding::Finding;
use super::host_stack::HostStack;

pub(super) fn document(findings: &[Finding]) -> String {
    let mut text = String::from("<?xml version=\"1.0\"?>\n<KernelgateSanitizerOutput>\n");
    for finding in findings {
        record(&mut text, finding);
    }
    text.push_str("</KernelgateSanitizerOutput>\n");
    text
}

fn record(text: &mut String, finding: &Finding) {
    let (kind, size, stacks): (_, _, Vec<(&str, &HostStack)>) = match finding {
        Finding::Access(access) => {
            let mut stacks = vec![("kernel launch time", &access.launched)];
            stacks.extend(access.freed.as_ref().map(|freed| ("free time", freed)));
            ("InvalidAccess", Some(u64::from(access.size)), stacks)
        }
        Finding::Heap(heap) => (
            "MallocFree",
            None,
            vec![("kernel launch time", &heap.launched)],
        ),
        Finding::Api(call) => ("ApiError", None, vec![("error", &call.called)]),
        Finding::Leak(leak) => (
            "Leak",
            Some(leak.bytes),
            vec![("allocation time", &leak.allocated)],
        ),
    };
    let whole = finding.to_string();
    let what = whole.lines().next().unwrap_or_default();
    let size = size.map_or_else(String::new, |size| format!("<size>{size}</size>"));
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "  <record>\n    <kind>{kind}</kind>\n    <level>Error</level>\n    \
         <what><text>{}</text>{size}</what>\n",
        escaped(what)
    );
    where_block(text, finding);
    for (when, stack) in stacks {
        host_stack(text, when, stack);
    }
    text.push_str("  </record>\n");
}

fn where_block(text: &mut String, finding: &Finding) {
    let (place, address) = match finding {
        Finding::Access(access) => (&access.place, access.address),
        Finding::Heap(heap) => (&heap.place, heap.address),
        Finding::Api(_) | Finding::Leak(_) => return,
    };
    let [tx, ty, tz] = place.thread;
    let [bx, by, bz] = place.block;
    let _ = writeln!(
        text,
        "    <where><kernel>{}</kernel><threadIdx>{tx},{ty},{tz}</threadIdx>\
         <blockIdx>{bx},{by},{bz}</blockIdx><address>{address:#x}</address></where>\n    <deviceStack>",
        escaped(&place.kernel)
    );
    for frame in &place.frames {
        let _ = writeln!(
            text,
            "      <frame><func>{}</func><file>{}</file><line>{}</line></frame>",
            escaped(&frame.function),
            escaped(&frame.file),
            frame.line
        );
    }
    text.push_str("    </deviceStack>\n");
}

fn host_stack(text: &mut String, when: &str, stack: &HostStack) {
    let _ = writeln!(
        text,
        "    <hostStack>\n      <saveLocation>{when}</saveLocation>"
    );
    for frame in &stack.frames {
        let _ = writeln!(
            text,
            "      <frame><func>{}</func><module>{}</module><offset>{:#x}</offset></frame>",
            escaped(frame.function.as_deref().unwrap_or("")),
            escaped(&frame.module),
            frame.offset
        );
    }
    text.push_str("    </hostStack>\n");
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            control if control.is_control() => safe.push('\u{fffd}'),
            other => safe.push(other),
        }
    }
    safe
}
