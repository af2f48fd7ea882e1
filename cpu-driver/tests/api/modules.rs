//! Loading: PTX text, fat binaries, files, the linker, and what is refused.
//!
//! `tests/fatbin/` holds `scale.cu` for compute_75, sm_90 with its PTX, and
//! compute_100, unpacked and packed both ways by nvcc 13.0; `machine_code.fatbin`
//! has sm_90 only.

use std::ffi::CStr;

use super::support::*;

const FATBINS: [(&str, &[u8]); 3] = [
    ("plain", include_bytes!("../fatbin/scale_plain.fatbin")),
    ("zstd", include_bytes!("../fatbin/scale_zstd.fatbin")),
    ("lz4", include_bytes!("../fatbin/scale_lz4.fatbin")),
];
const MACHINE_CODE: &[u8] = include_bytes!("../fatbin/machine_code.fatbin");

const GLOBALS: &str = ".version 8.0\n.target sm_75\n.address_size 64\n\
    .visible .global .align 4 .u32 numbers[3] = {1, 0xFFFFFFFF, 7};\n\
    .visible .global .align 8 .u64 where = numbers;\n\
    .visible .const .align 4 .f32 half = 0f3F000000;\n\
    .visible .entry nothing() { ret; }\n";

fn load(image: &[u8]) -> Result<Handle, i32> {
    let mut module = 0;
    match cuModuleLoadData(&mut module, image.as_ptr().cast()) {
        OK => Ok(module),
        code => Err(code),
    }
}

fn function(module: Handle, name: &str) -> Result<Handle, i32> {
    let mut function = 0;
    match cuModuleGetFunction(&mut function, module, text(name).as_ptr()) {
        OK => Ok(function),
        code => Err(code),
    }
}

#[test]
fn fat_binaries_load_however_they_are_packed() {
    let _context = Context::new();
    for (name, image) in FATBINS {
        let module = load(image).unwrap_or_else(|code| panic!("{name}: {code}"));
        function(module, "scale").unwrap_or_else(|code| panic!("{name}: {code}"));
        assert_eq!(function(module, "scal"), Err(NOT_FOUND));
        ok(cuModuleUnload(module));
        assert_eq!(function(module, "scale"), Err(INVALID_HANDLE));
    }
}

#[test]
fn machine_code_alone_is_no_image_for_this_device() {
    let _context = Context::new();
    assert_eq!(load(MACHINE_CODE), Err(NO_BINARY_FOR_GPU));
}

#[test]
fn damaged_fat_binaries_are_refused_and_never_crash() {
    let _context = Context::new();
    for (_, image) in FATBINS {
        for at in 0..96 {
            for value in [0, 0xff, image[at] ^ 1] {
                let mut damaged = image.to_vec();
                damaged[at] = value;
                if let Ok(module) = load(&damaged) {
                    ok(cuModuleUnload(module));
                }
            }
        }
    }
}

#[test]
fn globals_have_their_initial_values_and_addresses() {
    let _context = Context::new();
    let module = load(text(GLOBALS).as_bytes_with_nul()).expect("plain PTX");
    let find = |name: &str| {
        let (mut address, mut bytes) = (0, 0);
        let name = text(name);
        ok(cuModuleGetGlobal_v2(
            &mut address,
            &mut bytes,
            module,
            name.as_ptr(),
        ));
        (address, bytes)
    };
    let (numbers, bytes) = find("numbers");
    assert_eq!(bytes, 12);
    let expected = [1, 0, 0, 0, 255, 255, 255, 255, 7, 0, 0, 0];
    assert_eq!(download(numbers, 12), expected);
    assert_eq!(download(find("where").0, 8), numbers.to_le_bytes());
    assert_eq!(download(find("half").0, 4), 0.5_f32.to_le_bytes());
}

/// `CU_JIT_ERROR_LOG_BUFFER` and its size.
const LOG_KEYS: [u32; 2] = [5, 6];

#[test]
fn refused_ptx_says_why_in_the_error_log() {
    let _context = Context::new();
    let cases = [
        (
            ".version 8.0\n.target sm_75\n.entry k() { add.s32 }",
            "line 3",
            INVALID_PTX,
        ),
        (
            ".version 8.0\n.target sm_100a\n.entry k() { ret; }",
            "sm_100a",
            INVALID_PTX,
        ),
        ("not PTX at all", "line 1, column 1", INVALID_IMAGE),
        ("", "line 1, column 1", INVALID_IMAGE),
    ];
    for (ptx, expected, refusal) in cases {
        let mut log = [0x55_u8; 400];
        let mut values = [log.as_mut_ptr() as u64, log.len() as u64];
        let (mut module, ptx) = (0, text(ptx));
        let code = cuModuleLoadDataEx(
            &mut module,
            ptx.as_ptr().cast(),
            2,
            LOG_KEYS.as_ptr(),
            values.as_mut_ptr(),
        );
        assert_eq!(code, refusal);
        let told = CStr::from_bytes_until_nul(&log).expect("a terminated log");
        let told = told.to_str().expect("text");
        assert!(told.contains(expected), "{told}");
        assert_eq!(values[1] as usize, told.len());
    }
}

#[test]
fn a_log_that_is_too_small_is_cut_and_not_overrun() {
    let _context = Context::new();
    let mut log = [0x55_u8; 16];
    let mut values = [log.as_mut_ptr() as u64, 8];
    let (mut module, ptx) = (0, text("nonsense"));
    let code = cuModuleLoadDataEx(
        &mut module,
        ptx.as_ptr().cast(),
        2,
        LOG_KEYS.as_ptr(),
        values.as_mut_ptr(),
    );
    assert_eq!(
        (code, log[7], log[8], values[1]),
        (INVALID_IMAGE, 0, 0x55, 7)
    );
}

#[test]
fn linked_parts_become_one_module() {
    let _context = Context::new();
    let head = ".version 8.0\n.target sm_75\n.address_size 64\n";
    let parts = [
        format!("{head}.visible .entry one() {{ ret; }}"),
        format!("{head}.visible .entry two() {{ ret; }}"),
    ];
    let link = made(|out| cuLinkCreate_v2(0, std::ptr::null(), std::ptr::null_mut(), out));
    let none = (std::ptr::null(), std::ptr::null(), std::ptr::null_mut());
    for part in &parts {
        let data = part.as_ptr().cast();
        ok(cuLinkAddData_v2(
            link,
            1,
            data,
            part.len(),
            none.0,
            0,
            none.1,
            none.2,
        ));
    }
    let broken = "junk";
    let data = broken.as_ptr().cast();
    let refused = cuLinkAddData_v2(link, 1, data, broken.len(), none.0, 0, none.1, none.2);
    assert_eq!(refused, INVALID_PTX);
    let (mut image, mut bytes) = (std::ptr::null(), 0);
    ok(cuLinkComplete(link, &mut image, &mut bytes));
    let mut module = 0;
    ok(cuModuleLoadData(&mut module, image));
    ok(cuLinkDestroy(link));
    for name in ["one", "two"] {
        function(module, name).expect(name);
    }
}

#[test]
fn a_library_needs_no_context_and_dies_with_its_unload() {
    ok(cuInit(0));
    let ptx = text(GLOBALS);
    let (keys, values) = (std::ptr::null(), std::ptr::null_mut());
    let image = ptx.as_ptr().cast();
    let library = made(|out| cuLibraryLoadData(out, image, keys, values, 0, keys, values, 0));
    let kernel = made(|out| cuLibraryGetKernel(out, library, text("nothing").as_ptr()));
    let _context = Context::new();
    let most: i32 = made(|out| cuFuncGetAttribute(out, 0, kernel));
    assert_eq!(most, 1024);
    ok(cuLibraryUnload(library));
    let mut most = 0;
    assert_eq!(cuFuncGetAttribute(&mut most, 0, kernel), INVALID_HANDLE);
}

#[test]
fn a_file_is_loaded_like_data_and_a_missing_one_is_named() {
    let _context = Context::new();
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fatbin/scale_zstd.fatbin"
    );
    let module = made(|out| cuModuleLoad(out, text(path).as_ptr()));
    function(module, "scale").expect("scale");
    let mut module = 0;
    assert_eq!(
        cuModuleLoad(&mut module, text("/nowhere/x.ptx").as_ptr()),
        301
    );
}
