//! The lesson kernels on a device: NVIDIA's or the CPU driver's.

mod support;

use anyhow::{Context, ensure};
use kernelgate::device::{Buffer, Device, Launch};
use kernelgate::kernels::{ADJACENT_DIFFERENCE, ALL, KernelModule, REDUCE, SQUARE, WINDOW_SUM};
use std::process::ExitCode;
use support::{Need, case};

const THREADS: u32 = 256;

/// One element, around a block, the sizes of the lessons.
const SIZES: [usize; 7] = [1, 255, 256, 257, 611, 1_024, 6_151];

fn main() -> ExitCode {
    let device: Need = Device::open().map(|_| ()).map_err(|e| e.to_string());
    support::run(vec![
        case("every_kernel_file_loads", &[&device], every_file_loads),
        case(
            "block_sums_are_exact_for_a_ragged_last_block",
            &[&device],
            || SIZES.iter().try_for_each(|&n| block_sums(n)),
        ),
        case(
            "square_is_right_with_and_without_its_bug",
            &[&device],
            || both("squareGuarded", "squarePastEnd", square),
        ),
        case(
            "difference_is_right_with_and_without_its_bug",
            &[&device],
            || both("diffNext", "diffNextPastEnd", difference),
        ),
        case(
            "window_sum_is_right_with_and_without_its_bug",
            &[&device],
            || both("windowSum", "windowSumPastTile", window_sum),
        ),
    ])
}

/// The lesson's point: the outputs of fix and bug are equal, and right.
fn both(
    fixed: &str,
    broken: &str,
    run: fn(&Device, &str, usize) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for kernel in [fixed, broken] {
        for n in SIZES {
            let device = Device::open()?;
            run(&device, kernel, n).with_context(|| format!("{kernel} at n = {n}"))?;
        }
    }
    Ok(())
}

fn every_file_loads() -> anyhow::Result<()> {
    let device = Device::open()?;
    let (major, minor) = device.info().compute_capability;
    let own = u32::try_from(major * 10 + minor)?;
    let mut loaded = 0;
    for module in ALL.iter().filter(|module| runs_on(module, own)) {
        device.load(module)?;
        loaded += 1;
    }
    ensure!(loaded >= 4, "loaded {loaded} kernel files on sm_{own}");
    Ok(())
}

/// Plain targets run on later devices; a target with a suffix on its own only.
fn runs_on(module: &KernelModule, device: u32) -> bool {
    let name = module.target.trim_start_matches("sm_");
    match name.parse::<u32>() {
        Ok(target) => target <= device,
        Err(_) => name.trim_end_matches(char::is_alphabetic) == device.to_string(),
    }
}

fn cover(n: usize) -> Launch {
    Launch::linear(n.div_ceil(THREADS as usize) as u32, THREADS)
}

fn finish<T: kernelgate::device::Element>(
    device: &Device,
    out: &Buffer<T>,
) -> anyhow::Result<Vec<T>> {
    device.synchronize()?;
    Ok(out.download()?)
}

fn block_sums(n: usize) -> anyhow::Result<()> {
    let device = Device::open()?;
    let module = device.load(&REDUCE)?;
    // Halves: exact in f32 in any order at these sizes.
    let host: Vec<f32> = (0..n).map(|i| 0.5 * (i % 97) as f32).collect();
    let input = device.upload(&host)?;
    let partials = device.poisoned::<f32>(n.div_ceil(THREADS as usize))?;
    module
        .kernel("blockTreeSum")?
        .launch(cover(n), &[&input, &partials, &(n as u64)])?;
    let want: Vec<f32> = host
        .chunks(THREADS as usize)
        .map(|block| block.iter().map(|&x| f64::from(x)).sum::<f64>() as f32)
        .collect();
    ensure!(
        finish(&device, &partials)? == want,
        "blockTreeSum at n = {n}"
    );
    Ok(())
}

fn square(device: &Device, kernel: &str, n: usize) -> anyhow::Result<()> {
    let module = device.load(&SQUARE)?;
    let host: Vec<f32> = (0..n).map(|i| i as f32 - 300.5).collect();
    let input = device.upload(&host)?;
    let out = device.poisoned::<f32>(n)?;
    module
        .kernel(kernel)?
        .launch(cover(n), &[&input, &out, &(n as u64)])?;
    let want: Vec<f32> = host.iter().map(|x| x * x).collect();
    ensure!(finish(device, &out)? == want);
    Ok(())
}

/// Pseudo-random words, so that sums and differences wrap.
fn words(n: usize) -> Vec<u32> {
    (0..n as u32)
        .map(|i| i.wrapping_mul(2_654_435_761))
        .collect()
}

fn difference(device: &Device, kernel: &str, n: usize) -> anyhow::Result<()> {
    let module = device.load(&ADJACENT_DIFFERENCE)?;
    let host = words(n);
    let input = device.upload(&host)?;
    let (out, tap) = (device.poisoned::<u32>(n)?, device.poisoned::<u32>(n)?);
    let (count, launch) = (n as u64, cover(n));
    match kernel {
        "diffNext" => module
            .kernel(kernel)?
            .launch(launch, &[&input, &out, &count])?,
        _ => module
            .kernel(kernel)?
            .launch(launch, &[&input, &out, &tap, &count])?,
    }
    let mut want: Vec<u32> = host.windows(2).map(|w| w[1].wrapping_sub(w[0])).collect();
    want.push(0);
    ensure!(finish(device, &out)? == want);
    Ok(())
}

fn window_sum(device: &Device, kernel: &str, n: usize) -> anyhow::Result<()> {
    let module = device.load(&WINDOW_SUM)?;
    let host = words(n);
    let input = device.upload(&host)?;
    let out = device.poisoned::<u32>(n)?;
    module
        .kernel(kernel)?
        .launch(cover(n), &[&input, &out, &(n as u64)])?;
    let padded = [&[0][..], &host, &[0]].concat();
    let want: Vec<u32> = padded
        .windows(3)
        .map(|w| w[0].wrapping_add(w[1]).wrapping_add(w[2]))
        .collect();
    ensure!(finish(device, &out)? == want);
    Ok(())
}
