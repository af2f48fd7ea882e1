//! Edge values as bits. Those that decide most bugs stand first: a product of
//! several operands takes only the head of each list.

#[rustfmt::skip]
pub(super) const F32: [u64; 38] = [
    0x0000_0000, 0x8000_0000, 0x7f80_0000, 0x7fc0_0000, 0x0000_0001, 0x3f80_0000, 0x7f7f_ffff,
    0xff80_0000, 0xbf80_0000, 0x007f_ffff, 0x0080_0000, 0x8000_0001, 0xff7f_ffff, 0x3f80_0001,
    0x7f80_0001, 0xffc1_2345, 0x3f7f_ffff, 0x3fc0_0000, 0x3f00_0000, 0x4000_0000, 0x4040_0000,
    0x807f_ffff, 0x8080_0000, 0x3380_0000, 0x3400_0000, 0x4b80_0000, 0x4b80_0001, 0x4f00_0000,
    0x4eff_ffff, 0xcf00_0000, 0x5f00_0000, 0x3dcc_cccd, 0x4049_0fdb, 0x7effffff, 0x0100_0000,
    0x1fff_ffff, 0x2000_0000, 0xc2c8_0000,
];
#[rustfmt::skip]
pub(super) const F64: [u64; 32] = [
    0x0000_0000_0000_0000, 0x8000_0000_0000_0000, 0x7ff0_0000_0000_0000, 0x7ff8_0000_0000_0000,
    0x0000_0000_0000_0001, 0x3ff0_0000_0000_0000, 0x7fef_ffff_ffff_ffff, 0xfff0_0000_0000_0000,
    0xbff0_0000_0000_0000, 0x000f_ffff_ffff_ffff, 0x0010_0000_0000_0000, 0x8000_0000_0000_0001,
    0xffef_ffff_ffff_ffff, 0x3ff0_0000_0000_0001, 0x7ff0_0000_0000_0001, 0xfff8_1234_5678_9abc,
    0x3fef_ffff_ffff_ffff, 0x3ff8_0000_0000_0000, 0x3fe0_0000_0000_0000, 0x4000_0000_0000_0000,
    0x4008_0000_0000_0000, 0x800f_ffff_ffff_ffff, 0x8010_0000_0000_0000, 0x3ca0_0000_0000_0000,
    0x4340_0000_0000_0000, 0x41e0_0000_0000_0000, 0x43e0_0000_0000_0000, 0x3fb9_9999_9999_999a,
    0x47ef_ffff_e000_0000, 0x3810_0000_0000_0000, 0x36a0_0000_0000_0000, 0xc059_0000_0000_0000,
];
#[rustfmt::skip]
pub(super) const F16: [u64; 28] = [
    0x0000, 0x8000, 0x7c00, 0x7e00, 0x0001, 0x3c00, 0x7bff, 0xfc00, 0xbc00, 0x03ff, 0x0400,
    0x8001, 0xfbff, 0x3c01, 0x7c01, 0xfe12, 0x3bff, 0x3e00, 0x3800, 0x4000, 0x4200, 0x83ff,
    0x8400, 0x6400, 0x6801, 0x1000, 0x77ff, 0x2e66,
];
#[rustfmt::skip]
pub(super) const BF16: [u64; 26] = [
    0x0000, 0x8000, 0x7f80, 0x7fc0, 0x0001, 0x3f80, 0x7f7f, 0xff80, 0xbf80, 0x007f, 0x0080,
    0x8001, 0xff7f, 0x3f81, 0x7f81, 0xffc5, 0x3f7f, 0x3fc0, 0x3f00, 0x4000, 0x4040, 0x807f,
    0x8080, 0x4f00, 0x4380, 0x3b00,
];
#[rustfmt::skip]
pub(super) const SHIFTS: [u64; 16] = [
    0, 1, 31, 32, 33, 5, 63, 64, 16, 15, 255, 65, 256, 0xffff_ffff, 8, 0x8000_0001,
];
/// Bits of f32 fractions to round: halves, quarters, limits of the integers.
#[rustfmt::skip]
pub(super) const ROUND: [f64; 34] = [
    0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 0.25, -0.25, 0.75, -0.75, 3.5, 126.5, 127.5, 128.5, -128.5,
    -129.0, 254.5, 255.5, 256.0, 32766.5, 32767.5, -32768.5, -32769.0, 65534.5, 65535.5, 65536.0,
    2147483647.0, 2147483648.0, -2147483649.0, 4294967295.0, 4294967296.0,
    9.223_372_036_854_775e18, 1.844_674_407_370_955_2e19, -1.0,
];
