//! What is too large, too new or not PTX: refused with the code and the words
//! that help, at the load where the module says it, else at the launch.

use super::support::*;

const UNSUPPORTED_PTX_VERSION: i32 = 222;
/// `CU_JIT_ERROR_LOG_BUFFER` and its size.
const LOG_KEYS: [u32; 2] = [5, 6];
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`
const MAX_DYNAMIC_SHARED: u32 = 8;
/// `CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN`
const SHARED_OPTIN: i32 = 97;

const HEAD: &str = ".version 8.0\n.target sm_75\n.address_size 64\n";

/// The module, or the code and the error log.
fn load(ptx: &str) -> Result<Handle, (i32, String)> {
    let mut log = [0_u8; 1000];
    let mut values = [log.as_mut_ptr() as u64, log.len() as u64];
    let (mut module, ptx) = (0, text(ptx));
    let code = cuModuleLoadDataEx(
        &mut module,
        ptx.as_ptr().cast(),
        2,
        LOG_KEYS.as_ptr(),
        values.as_mut_ptr(),
    );
    if code == OK {
        return Ok(module);
    }
    let end = log.iter().position(|&byte| byte == 0).expect("an end");
    Err((code, String::from_utf8_lossy(&log[..end]).into_owned()))
}

#[track_caller]
fn refused(ptx: &str, code: i32, words: &[&str]) {
    let (found, log) = load(ptx).expect_err(ptx);
    assert_eq!(found, code, "{ptx}\n{log}");
    for word in words {
        assert!(log.contains(word), "{word} is missing: {log}");
    }
    for debug_text in ["Name(", "Some(", "Int(", "Word", "Long"] {
        assert!(!log.contains(debug_text), "{log}");
    }
}

fn launch(function: Handle, threads: u32, shared: u32) -> i32 {
    let none = std::ptr::null();
    cuLaunchKernel(
        function,
        1,
        1,
        1,
        threads,
        1,
        1,
        shared,
        0,
        none,
        none.cast(),
    )
}

fn kernel(module: Handle, name: &str) -> Handle {
    made(|out| cuModuleGetFunction(out, module, text(name).as_ptr()))
}

#[test]
fn more_than_a_space_can_hold_is_refused_at_the_load() {
    let _context = Context::new();
    let entry = |params: &str, body: &str| format!("{HEAD}.entry k({params}) {{ {body} ret; }}");
    for bytes in ["300000", "232449", "99999999999"] {
        let ptx = entry("", &format!(".shared .b8 a[{bytes}];"));
        refused(
            &ptx,
            INVALID_PTX,
            &["line 4", "k uses too much shared data", bytes],
        );
    }
    // Of a variable outside the kernel, what it reaches counts.
    let outside = |body| format!("{HEAD}.shared .b8 a[300000];\n.entry k() {{ {body} ret; }}");
    refused(
        &outside(".reg .b32 %r<2>; ld.shared.b32 %r1, [a];"),
        INVALID_PTX,
        &["too much shared data"],
    );
    ok(cuModuleUnload(load(&outside("")).expect("not reached")));
    refused(
        &format!("{HEAD}.const .b8 a[65537];\n.entry k() {{ ret; }}"),
        INVALID_PTX,
        &["constant data", "65537"],
    );
    refused(
        &entry("", ".local .b8 a[99999999999];"),
        INVALID_PTX,
        &["local data"],
    );
    refused(
        &entry(".param .b8 p[100000000]", ""),
        INVALID_PTX,
        &["parameter space", "100000000"],
    );
    refused(&entry(".param .b8 p[4353]", ""), INVALID_PTX, &["4352"]);
    let newer = entry(".param .b8 p[32765]", "").replace(".version 8.0", ".version 8.1");
    refused(&newer, INVALID_PTX, &["32764"]);
    for fits in [
        entry("", ".shared .b8 a[49152];"),
        entry("", ".shared .b8 a[232448];"),
        entry("", ".local .b8 a[524288];"),
        entry("", ".local .b8 a[600000];"),
        entry(".param .b8 p[4352]", ""),
        entry(".param .b8 p[32764]", "").replace(".version 8.0", ".version 8.1"),
        format!("{HEAD}.const .b8 a[65536];\n.entry k() {{ ret; }}"),
    ] {
        ok(cuModuleUnload(load(&fits).expect(&fits)));
    }
}

#[test]
fn a_global_larger_than_the_device_is_out_of_memory() {
    let _context = Context::new();
    for bytes in ["99999999999999", "140737488355327"] {
        let ptx = format!("{HEAD}.visible .global .b8 a[{bytes}];\n.entry k() {{ ret; }}");
        assert_eq!(
            load(&ptx).expect_err("too large").0,
            OUT_OF_MEMORY,
            "{bytes}"
        );
    }
}

/// KiB that this process keeps in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
    kibibytes
        .and_then(|text| text.parse().ok())
        .expect("a size")
}

#[test]
fn a_large_global_costs_nothing_before_it_is_touched() {
    let _context = Context::new();
    let ptx =
        format!("{HEAD}.visible .global .b8 a[1073741824] = {{1, 2}};\n.entry k() {{ ret; }}");
    let before = resident();
    let module = load(&ptx).expect("one GiB");
    let grown = resident().saturating_sub(before);
    assert!(grown < 512 << 10, "{grown} KiB more");
    let address = made(|out| {
        let (mut bytes, name) = (0, text("a"));
        cuModuleGetGlobal_v2(out, &raw mut bytes, module, name.as_ptr())
    });
    assert_eq!(download(address, 4), [1, 2, 0, 0]);
    assert_eq!(download(address + (1 << 30) - 2, 2), [0, 0]);
    ok(cuModuleUnload(module));
}

#[test]
fn dynamic_shared_memory_stops_at_what_the_function_may_use() {
    let _context = Context::new();
    let most = made(|out| cuDeviceGetAttribute(out, SHARED_OPTIN, 0)) as u32;
    let ptx = format!(
        "{HEAD}.extern .shared .b8 d[];\n.visible .entry k() {{ .shared .b8 s[1024]; ret; }}"
    );
    let function = kernel(load(&ptx).expect("loads"), "k");
    ok(launch(function, 32, 47 << 10));
    for bytes in [(47 << 10) + 1, most, u32::MAX] {
        assert_eq!(launch(function, 32, bytes), INVALID_VALUE, "{bytes}");
    }
    let set = |bytes: u32| cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED, bytes as i32);
    assert_eq!(set(most), INVALID_VALUE);
    ok(set(most - 1024));
    ok(launch(function, 32, most - 1024));
    assert_eq!(launch(function, 32, most - 1023), INVALID_VALUE);
    ok(cuCtxSynchronize());
}

#[test]
fn recursion_beyond_the_stack_is_a_fault_and_a_higher_limit_lets_it_go_on() {
    let depth = |n: u32| {
        format!(
            "{HEAD}.func f(.param .b32 n) {{ .reg .b32 %r<3>; .reg .pred %p<2>;\n\
             ld.param.u32 %r1, [n]; setp.eq.u32 %p1, %r1, 0; @%p1 ret;\n\
             add.s32 %r2, %r1, -1; {{ .param .b32 a; st.param.b32 [a], %r2; call f, (a); }}\n\
             ret; }}\n.visible .entry k() {{ {{ .param .b32 a; st.param.b32 [a], {n};\n\
             call f, (a); }} ret; }}"
        )
    };
    let context = Context::new();
    let module = load(&depth(2000)).expect("loads");
    ok(cuCtxSetLimit(0, 256 << 10));
    ok(launch(kernel(module, "k"), 32, 0));
    ok(cuCtxSynchronize());
    assert_eq!(cuCtxSetLimit(0, (512 << 10) + 1), INVALID_VALUE);
    ok(cuCtxSetLimit(0, 1024));
    ok(launch(kernel(module, "k"), 32, 0));
    assert_eq!(cuCtxSynchronize(), ILLEGAL_ADDRESS);
    drop(context);

    let _context = Context::new();
    let ptx = format!(
        "{HEAD}.func f() {{ .local .b8 a[500000]; ret; }}\n\
         .visible .entry k() {{ .local .b8 a[500000]; call f; ret; }}"
    );
    let function = kernel(load(&ptx).expect("each fits"), "k");
    assert_eq!(launch(function, 1, 0), INVALID_VALUE);
    ok(cuCtxSynchronize());
}

#[test]
fn a_block_of_another_shape_than_required_is_refused() {
    let _context = Context::new();
    let ptx = format!("{HEAD}.visible .entry k() .reqntid 64 {{ ret; }}");
    let function = kernel(load(&ptx).expect("loads"), "k");
    for (threads, code) in [(64, 0), (32, INVALID_VALUE), (128, INVALID_VALUE)] {
        assert_eq!(launch(function, threads, 0), code, "{threads} threads");
    }
}

#[test]
fn malformed_modules_are_refused_with_line_found_and_expected() {
    let _context = Context::new();
    let entry = |body: &str| format!("{HEAD}.entry k() {{\n.reg .b32 %r<4>;\n{body}\nret; }}");
    for (body, words) in [
        ("add.u32 %r1, %r2, %nope;", &["line 6", "`%nope`"][..]),
        ("bra NOPE;", &["line 6", "expected a label, found `NOPE`"]),
        ("mov.u32 %r1, nope;", &["line 6", "`nope`"]),
        (
            "add.f64 %r1, %r2, %r3;",
            &["line 6", "expected a register that holds .f64"],
        ),
        ("x: x: ret;", &["line 6", "`x` is declared twice"]),
        (".reg .b32 %r<2>;", &["line 6", "`%r0` is declared twice"]),
    ] {
        refused(&entry(body), INVALID_PTX, words);
    }
    let twice = format!("{HEAD}.entry k() {{ ret; }}\n.entry k() {{ ret; }}");
    refused(
        &twice,
        INVALID_PTX,
        &["line 5", "duplicate definition of k"],
    );
    let bounds = format!("{HEAD}.entry k() .maxntid 0, 0, 0 {{ ret; }}");
    refused(&bounds, INVALID_PTX, &["line 4", "at least 1, found 0"]);
    let version = entry("").replace("8.0", "99.9");
    refused(
        &version,
        UNSUPPORTED_PTX_VERSION,
        &["line 1", "found `99.9`"],
    );
    // Newer than this driver is fine: a form it does not know fails when reached.
    let newer = entry("@!%p1 frobnicate.x7 %r1;").replace(".reg", ".reg .pred %p<2>; .reg");
    load(&newer.replace("8.0", "9.5")).expect("an unknown form that is not reached");
}
