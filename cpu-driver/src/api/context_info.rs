//! What a context tells about itself: device, limits, flags, cache settings.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::code::Code;
use super::context::{by_handle, current, current_or_lost};
use super::ffi::{Out, Outcome};
use super::guard::entries;
use super::handles::Handle;
use crate::machine::launch::LOCAL_LIMIT;

/// `CU_LIMIT_STACK_SIZE`
const STACK: u32 = 0;

/// `CUlimit` values that exist, with what a fresh context reports.
const LIMITS: &[(u32, usize)] = &[
    (STACK, 1024), // stack size
    (1, 1 << 20),  // printf buffer
    (2, 8 << 20),  // device heap
    (3, 2),        // device-side synchronise depth
    (4, 2048),     // pending device-side launches
    (5, 64),       // L2 fetch granularity
    (6, 0),        // persisting L2
];

fn get_limit(out: Out<usize>, limit: u32) -> Outcome {
    let context = current()?;
    let default = LIMITS.iter().find(|(known, _)| *known == limit);
    let default = default.ok_or(Code::UNSUPPORTED_LIMIT)?.1;
    let limits = context
        .limits
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    out.set(limits.get(&limit).copied().unwrap_or(default))
}

/// `CU_LIMIT_STACK_SIZE` of a context, in bytes.
pub fn stack_limit(context: Handle) -> u32 {
    let set = super::context::CONTEXTS
        .get(context)
        .ok()
        .and_then(|context| {
            let limits = context
                .limits
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            limits.get(&STACK).copied()
        });
    set.map_or(LIMITS[0].1 as u32, |bytes| bytes as u32)
}

fn set_limit(limit: u32, value: usize) -> Outcome {
    let context = current()?;
    if !LIMITS.iter().any(|(known, _)| *known == limit) {
        return Err(Code::UNSUPPORTED_LIMIT);
    }
    // Sizes are rounded as the hardware does: whole 16 bytes.
    let value = match limit {
        STACK if value > LOCAL_LIMIT as usize => return Err(Code::INVALID_VALUE),
        STACK => value.next_multiple_of(16),
        _ => value,
    };
    let mut limits = context
        .limits
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    limits.insert(limit, value);
    Ok(())
}

fn device_of(out: Out<i32>, context: Handle) -> Outcome {
    out.set(by_handle(context)?.state.device as i32)
}

fn set_cache(config: i32) -> Outcome {
    if !(0..=3).contains(&config) {
        return Err(Code::INVALID_VALUE);
    }
    current()?.cache_config.store(config, Ordering::Relaxed);
    Ok(())
}

fn set_shared_config(config: i32) -> Outcome {
    if !(0..=2).contains(&config) {
        return Err(Code::INVALID_VALUE);
    }
    current()?.shared_config.store(config, Ordering::Relaxed);
    Ok(())
}

fn priority_range(least: Out<i32>, greatest: Out<i32>) -> Outcome {
    current()?;
    least.set_if_wanted(super::stream::LEAST_PRIORITY)?;
    greatest.set_if_wanted(super::stream::GREATEST_PRIORITY)
}

fn set_flags(flags: u32) -> Outcome {
    current()?.flags.store(flags, Ordering::Relaxed);
    Ok(())
}

fn enable_peer(peer: Handle, flags: u32) -> Outcome {
    let context = current()?;
    let peer = super::context::CONTEXTS.get(peer);
    let peer = peer.map_err(|_| Code::INVALID_CONTEXT)?;
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    if peer.state.device == context.state.device {
        return Err(Code::INVALID_DEVICE);
    }
    let mut peers = context.peers.lock().unwrap_or_else(PoisonError::into_inner);
    if peers.contains(&peer.state.handle) {
        return Err(Code::PEER_ACCESS_ALREADY_ENABLED);
    }
    peers.push(peer.state.handle);
    Ok(())
}

fn disable_peer(peer: Handle) -> Outcome {
    let context = current()?;
    let mut peers = context.peers.lock().unwrap_or_else(PoisonError::into_inner);
    let position = peers.iter().position(|&known| known == peer);
    peers.remove(position.ok_or(Code::PEER_ACCESS_NOT_ENABLED)?);
    Ok(())
}

entries! {
    cuCtxGetDevice(out: Out<i32>) => device_of(out, 0);
    cuCtxGetDevice_v2(out: Out<i32>, context: Handle) => device_of(out, context);
    cuCtxGetId(context: Handle, out: Out<u64>) => out.set(by_handle(context)?.state.handle >> 4);
    cuCtxGetApiVersion(context: Handle, out: Out<u32>) => {
        by_handle(context)?;
        out.set(3020)
    };
    cuCtxGetLimit(out: Out<usize>, limit: u32) => get_limit(out, limit);
    cuCtxSetLimit(limit: u32, value: usize) => set_limit(limit, value);
    cuCtxGetCacheConfig(out: Out<i32>) => out.set(current()?.cache_config.load(Ordering::Relaxed));
    cuCtxSetCacheConfig(config: i32) => set_cache(config);
    cuCtxGetSharedMemConfig(out: Out<i32>) =>
        out.set(current()?.shared_config.load(Ordering::Relaxed));
    cuCtxSetSharedMemConfig(config: i32) => set_shared_config(config);
    cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) =>
        priority_range(least, greatest);
    cuCtxGetFlags(out: Out<u32>) => out.set(current_or_lost()?.flags.load(Ordering::Relaxed));
    cuCtxSetFlags(flags: u32) => set_flags(flags);
    cuCtxResetPersistingL2Cache() => current().map(drop);
    cuCtxEnablePeerAccess(peer: Handle, flags: u32) => enable_peer(peer, flags);
    cuCtxDisablePeerAccess(peer: Handle) => disable_peer(peer);
}
