//! The workloads of `kernelgate bench` on whatever device there is: their checks pass
//! on right kernels and turn wrong ones away. No time is taken.

use kernelgate::device::Device;
use kernelgate::gemm::faults::CATALOGUE;
use kernelgate::gemm::planted::Plant;
use kernelgate::gemm::problem::{Form, Problem};
use kernelgate::gemm::simt::Simt;
use kernelgate::gemm::subject::Subject;
use kernelgate::lowp::OutputType;
use kernelgate::perf::gemm::{GemmWorkload, Timed};
use kernelgate::perf::workload::{Checked, Config, Workload};

/// Ragged groups, one of them empty.
fn problem(form: &str) -> Problem {
    let rows = vec![65, 0, 96, 33];
    let problem = Problem::dense(130, 136, 256, OutputType::F32);
    match form {
        "contiguous" => problem.with_form(Form::Contiguous { rows }),
        "masked" => problem.with_form(Form::Masked { max_rows: 96, rows }),
        _ => problem,
    }
}

fn checked(device: &Device, subject: Box<dyn Subject>, form: &str) -> Checked {
    let timed = Timed::Whole(subject);
    let mut workload = GemmWorkload::new(device, timed, Config::default(), problem(form)).unwrap();
    workload.refresh(7).unwrap();
    workload.launch().unwrap();
    device.synchronize().unwrap();
    workload.verify().unwrap()
}

#[test]
fn a_right_kernel_passes_in_every_form() {
    let device = Device::open().unwrap();
    for form in ["dense", "contiguous", "masked"] {
        let simt = Box::new(Simt::load(&device).unwrap());
        let found = checked(&device, simt, form);
        assert_eq!(found.failure, None, "{form}");
        assert!(found.compared >= 4, "{form}: {}", found.compared);
    }
}

#[test]
fn a_result_that_nothing_wrote_fails() {
    let device = Device::open().unwrap();
    for form in ["dense", "contiguous", "masked"] {
        let simt = Timed::Whole(Box::new(Simt::load(&device).unwrap()));
        let mut workload =
            GemmWorkload::new(&device, simt, Config::default(), problem(form)).unwrap();
        workload.refresh(7).unwrap();
        let failure = workload.verify().unwrap().failure.unwrap();
        assert!(failure.contains("not written"), "{form}: {failure}");
    }
}

/// What only a grouped form can get wrong.
#[test]
fn wrong_grouped_kernels_fail() {
    let device = Device::open().unwrap();
    for (fault, form, what) in [
        ("masked-rows-written", "masked", "past its group's count"),
        ("empty-groups-skipped", "contiguous", "expected"),
        ("empty-groups-skipped", "masked", "expected"),
        ("ragged-rows-unwritten", "contiguous", "not written"),
    ] {
        let plant = Box::leak(Box::new(Plant::load(&device).unwrap()));
        let planted = CATALOGUE.iter().find(|f| f.name == fault).unwrap();
        let found = checked(&device, Box::new(plant.fault(planted)), form);
        let failure = found.failure.unwrap_or_default();
        assert!(failure.contains(what), "{fault}, {form}: {failure}");
    }
}
