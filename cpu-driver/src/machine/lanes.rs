//! From a function of one lane to an operation of 32 lanes.
//!
//! A family writes `fn f(a, b) -> d` for one lane; the shells here load rows,
//! loop over the lanes (the compiler turns that loop into vector code), and
//! store under the mask of active lanes. Every shell exists twice: compiled
//! for AVX2 with FMA and for the baseline; [`pick`] chooses at run time.

use std::mem::MaybeUninit;
use std::sync::OnceLock;

use super::context::Context;
use super::numerics::half::{BF16, F16};
use crate::program::code::{Class, Exec, Op, Step};

/// Number of lanes of a warp.
pub const LANES: usize = 32;

/// A lane operation as it stands in a family's table.
#[derive(Clone, Copy)]
pub struct LaneForm {
    /// PTX text of the forms, braces giving alternatives: `add.{u32,s32}`.
    pub names: &'static str,
    pub wide: Exec,
    pub plain: Exec,
    pub dst: Class,
    pub src: [Class; 4],
}

impl LaneForm {
    pub fn exec(&self) -> Exec {
        pick(self.wide, self.plain)
    }
}

/// True where the vector extensions that the wide shells use are present.
pub fn has_wide() -> bool {
    static WIDE: OnceLock<bool> = OnceLock::new();
    *WIDE.get_or_init(|| {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("bmi2")
    })
}

/// The wide shell where the processor has what it needs.
pub fn pick(wide: Exec, plain: Exec) -> Exec {
    if has_wide() { wide } else { plain }
}

/// A type that a lane function can take or give.
///
/// # Safety
/// `View`, `get` and `commit` must stay inside the register at the offset.
pub unsafe trait Lane: Copy {
    const CLASS: Class;
    type View: Copy;
    type Out;
    /// # Safety
    /// `offset` is a register of class `CLASS` in `frame`.
    unsafe fn view(frame: *mut u8, offset: u32) -> Self::View;
    /// # Safety
    /// `view` is of a live frame; `lane < 32`.
    unsafe fn get(view: &Self::View, lane: usize) -> Self;
    fn out() -> Self::Out;
    fn put(out: &mut Self::Out, lane: usize, value: Self);
    /// # Safety
    /// As for `view`; every lane has been put.
    unsafe fn commit(out: Self::Out, frame: *mut u8, offset: u32, active: u32);
}

macro_rules! row_lane {
    ($ty:ty, $raw:ty, $class:ident, $from:expr, $to:expr) => {
        // SAFETY: a row of this class holds 32 values of the raw type.
        unsafe impl Lane for $ty {
            const CLASS: Class = Class::$class;
            type View = *const $raw;
            type Out = [MaybeUninit<$raw>; LANES];

            #[inline(always)]
            unsafe fn view(frame: *mut u8, offset: u32) -> Self::View {
                // SAFETY: the caller's promise.
                unsafe { frame.add(offset as usize).cast() }
            }
            #[inline(always)]
            unsafe fn get(view: &Self::View, lane: usize) -> Self {
                // SAFETY: the caller's promise.
                let raw: $raw = unsafe { *view.add(lane) };
                ($from)(raw)
            }
            #[inline(always)]
            fn out() -> Self::Out {
                [const { MaybeUninit::uninit() }; LANES]
            }
            #[inline(always)]
            fn put(out: &mut Self::Out, lane: usize, value: Self) {
                out[lane].write(($to)(value));
            }
            #[inline(always)]
            unsafe fn commit(out: Self::Out, frame: *mut u8, offset: u32, active: u32) {
                // SAFETY: the caller's promise: the row is 32 raw values, and
                // all of `out` was written.
                unsafe {
                    let row: *mut $raw = frame.add(offset as usize).cast();
                    let out: [$raw; LANES] = std::mem::transmute(out);
                    if active == u32::MAX {
                        row.cast::<[$raw; LANES]>().write(out);
                    } else {
                        for (lane, value) in out.into_iter().enumerate() {
                            let keep = *row.add(lane);
                            *row.add(lane) = if active >> lane & 1 != 0 { value } else { keep };
                        }
                    }
                }
            }
        }
    };
}

row_lane!(u8, u32, Word, |r: u32| r as u8, u32::from);
row_lane!(i8, u32, Word, |r: u32| r as i8, |v: i8| v as u8 as u32);
row_lane!(u16, u32, Word, |r: u32| r as u16, u32::from);
row_lane!(i16, u32, Word, |r: u32| r as i16, |v: i16| v as u16 as u32);
row_lane!(F16, u32, Word, |r: u32| F16(r as u16), |v: F16| u32::from(
    v.0
));
row_lane!(BF16, u32, Word, |r: u32| BF16(r as u16), |v: BF16| {
    u32::from(v.0)
});
row_lane!(u32, u32, Word, |r: u32| r, |v: u32| v);
row_lane!(i32, u32, Word, |r: u32| r as i32, |v: i32| v as u32);
row_lane!(f32, u32, Word, f32::from_bits, f32::to_bits);
row_lane!(u64, u64, Long, |r: u64| r, |v: u64| v);
row_lane!(i64, u64, Long, |r: u64| r as i64, |v: i64| v as u64);
row_lane!(f64, u64, Long, f64::from_bits, f64::to_bits);
row_lane!(u128, u128, Quad, |r: u128| r, |v: u128| v);

// SAFETY: a predicate is one 32-bit mask.
unsafe impl Lane for bool {
    const CLASS: Class = Class::Predicate;
    type View = u32;
    type Out = u32;

    #[inline(always)]
    unsafe fn view(frame: *mut u8, offset: u32) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { *frame.add(offset as usize).cast::<u32>() }
    }
    #[inline(always)]
    unsafe fn get(view: &u32, lane: usize) -> bool {
        view >> lane & 1 != 0
    }
    #[inline(always)]
    fn out() -> u32 {
        0
    }
    #[inline(always)]
    fn put(out: &mut u32, lane: usize, value: bool) {
        *out |= u32::from(value) << lane;
    }
    #[inline(always)]
    unsafe fn commit(out: u32, frame: *mut u8, offset: u32, active: u32) {
        // SAFETY: the caller's promise.
        unsafe {
            let mask = frame.add(offset as usize).cast::<u32>();
            *mask = (*mask & !active) | (out & active);
        }
    }
}

/// A lane function of one to four arguments.
pub trait Map1 {
    type A: Lane;
    type D: Lane;
    fn f(a: Self::A) -> Self::D;
}
pub trait Map2 {
    type A: Lane;
    type B: Lane;
    type D: Lane;
    fn f(a: Self::A, b: Self::B) -> Self::D;
}
pub trait Map3 {
    type A: Lane;
    type B: Lane;
    type C: Lane;
    type D: Lane;
    fn f(a: Self::A, b: Self::B, c: Self::C) -> Self::D;
}
pub trait Map4 {
    type A: Lane;
    type B: Lane;
    type C: Lane;
    type E: Lane;
    type D: Lane;
    fn f(a: Self::A, b: Self::B, c: Self::C, e: Self::E) -> Self::D;
}

macro_rules! shells {
    ($map:ident, $body:ident, $wide:ident, $plain:ident, $form:ident,
     [$($arg:ident : $assoc:ident @ $field:ident),*], $src:expr) => {
        /// # Safety
        /// The operation's offsets are registers of the classes of `M`.
        #[inline(always)]
        unsafe fn $body<M: $map>(cx: &mut Context<'_>, op: &Op) -> Step {
            let frame = cx.frame();
            // SAFETY: the register allocator laid the frame out for these
            // operands; the frame outlives the operation.
            unsafe {
                $(let $arg = <M::$assoc as Lane>::view(frame, op.$field);)*
                let mut out = <M::D as Lane>::out();
                for lane in 0..LANES {
                    let value = M::f($(<M::$assoc as Lane>::get(&$arg, lane)),*);
                    <M::D as Lane>::put(&mut out, lane, value);
                }
                <M::D as Lane>::commit(out, frame, op.dst, cx.active);
            }
            Step::Next
        }

        #[target_feature(enable = "avx2,fma,f16c,bmi2")]
        unsafe fn $wide<M: $map>(cx: &mut Context<'_>, op: &Op) -> Step {
            // SAFETY: the caller's promise.
            unsafe { $body::<M>(cx, op) }
        }

        unsafe fn $plain<M: $map>(cx: &mut Context<'_>, op: &Op) -> Step {
            // SAFETY: the caller's promise.
            unsafe { $body::<M>(cx, op) }
        }

        /// Table entry of a lane function.
        pub const fn $form<M: $map>(names: &'static str) -> LaneForm {
            LaneForm {
                names,
                wide: $wide::<M>,
                plain: $plain::<M>,
                dst: <M::D as Lane>::CLASS,
                src: $src,
            }
        }
    };
}

shells!(Map1, body1, wide1, plain1, form1, [a: A @ a],
    [<M::A as Lane>::CLASS, Class::None, Class::None, Class::None]);
shells!(Map2, body2, wide2, plain2, form2, [a: A @ a, b: B @ b],
    [<M::A as Lane>::CLASS, <M::B as Lane>::CLASS, Class::None, Class::None]);
shells!(Map3, body3, wide3, plain3, form3, [a: A @ a, b: B @ b, c: C @ c],
    [<M::A as Lane>::CLASS, <M::B as Lane>::CLASS, <M::C as Lane>::CLASS, Class::None]);
shells!(Map4, body4, wide4, plain4, form4, [a: A @ a, b: B @ b, c: C @ c, e: E @ aux],
    [<M::A as Lane>::CLASS, <M::B as Lane>::CLASS, <M::C as Lane>::CLASS, <M::E as Lane>::CLASS]);

/// Adds one line to a table of lane operations:
/// `lane!(out, "add.{u32,s32}", (a: u32, b: u32) -> u32, a.wrapping_add(b))`.
#[macro_export]
macro_rules! lane {
    ($out:ident, $name:expr, ($a:ident : $ta:ty) -> $d:ty, $body:expr) => {{
        struct L;
        impl $crate::machine::lanes::Map1 for L {
            type A = $ta;
            type D = $d;
            #[inline(always)]
            fn f($a: $ta) -> $d {
                $body
            }
        }
        $out.push($crate::machine::lanes::form1::<L>($name));
    }};
    ($out:ident, $name:expr, ($a:ident : $ta:ty, $b:ident : $tb:ty) -> $d:ty, $body:expr) => {{
        struct L;
        impl $crate::machine::lanes::Map2 for L {
            type A = $ta;
            type B = $tb;
            type D = $d;
            #[inline(always)]
            fn f($a: $ta, $b: $tb) -> $d {
                $body
            }
        }
        $out.push($crate::machine::lanes::form2::<L>($name));
    }};
    ($out:ident, $name:expr,
     ($a:ident : $ta:ty, $b:ident : $tb:ty, $c:ident : $tc:ty) -> $d:ty, $body:expr) => {{
        struct L;
        impl $crate::machine::lanes::Map3 for L {
            type A = $ta;
            type B = $tb;
            type C = $tc;
            type D = $d;
            #[inline(always)]
            fn f($a: $ta, $b: $tb, $c: $tc) -> $d {
                $body
            }
        }
        $out.push($crate::machine::lanes::form3::<L>($name));
    }};
    ($out:ident, $name:expr,
     ($a:ident : $ta:ty, $b:ident : $tb:ty, $c:ident : $tc:ty, $e:ident : $te:ty) -> $d:ty,
     $body:expr) => {{
        struct L;
        impl $crate::machine::lanes::Map4 for L {
            type A = $ta;
            type B = $tb;
            type C = $tc;
            type E = $te;
            type D = $d;
            #[inline(always)]
            fn f($a: $ta, $b: $tb, $c: $tc, $e: $te) -> $d {
                $body
            }
        }
        $out.push($crate::machine::lanes::form4::<L>($name));
    }};
}
