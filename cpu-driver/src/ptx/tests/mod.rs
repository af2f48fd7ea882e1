//! The parser against real nvcc output, against the manual's odder forms, and
//! against damage.

mod damage;
mod forms;
mod nvcc_output;
mod refused;

/// nvcc 13.0 output for `tests/ptx/tour.cu`.
const TOUR: &str = include_str!("../../../tests/ptx/tour_sm75.ptx");

const HEAD: &str = ".version 8.0\n.target sm_75\n.address_size 64\n";
