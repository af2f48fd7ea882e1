//! The text of findings, in compute-sanitizer's form, so that a student learns
//! one format. Lines come without the `=========` that the report puts before
//! each. What compute-sanitizer does not tell apart (use after free, host
//! pointers, bad frees on the host) gets a line of its own behind those that
//! it prints.

use std::fmt::{self, Display, Formatter};

use super::finding::{
    Access, ApiCall, BadFree, Distance, Finding, Heap, HeapProblem, Leak, Neighbour, Place,
    Problem, SourceFrame,
};
use super::host_stack::{HostFrame, HostStack};

impl Display for Finding {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Access(access) => access.fmt(f),
            Self::Heap(heap) => heap.fmt(f),
            Self::Api(call) => call.fmt(f),
            Self::Leak(leak) => leak.fmt(f),
        }
    }
}

impl Display for Access {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (space, access, size) = (self.space, self.access, Grouped(self.size.into()));
        writeln!(f, "Invalid __{space}__ {access} of size {size} bytes")?;
        self.place.fmt(f)?;
        let problem = match self.problem {
            Problem::Misaligned => "is misaligned",
            Problem::ReadOnly => "is a write to read-only memory",
            _ => "is out of bounds",
        };
        writeln!(f, "    Access to {:#x} {problem}", self.address)?;
        if let Some(nearest) = &self.nearest {
            nearest.fmt(f)?;
        }
        match self.problem {
            Problem::UseAfterFree => writeln!(f, "    and was freed before (use after free)")?,
            Problem::HostPointer => writeln!(
                f,
                "    and is host memory that is neither managed, pinned nor registered"
            )?,
            _ => {}
        }
        device_frames(f, &self.place)?;
        host_stack(f, "at kernel launch time", &self.launched)?;
        if let Some(freed) = &self.freed {
            host_stack(f, "at free time", freed)?;
        }
        Ok(())
    }
}

impl Display for Heap {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "Malloc/Free Error encountered : {}", self.problem)?;
        self.place.fmt(f)?;
        writeln!(f, "    Address {:#x}", self.address)?;
        device_frames(f, &self.place)?;
        host_stack(f, "at kernel launch time", &self.launched)
    }
}

impl Display for HeapProblem {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DoubleFree => "Double free",
            Self::InvalidFree => "Invalid pointer to free",
        })
    }
}

impl Display for ApiCall {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Program hit {} (error {}) due to \"{}\" on CUDA API call to {}.",
            self.name, self.code, self.description, self.function
        )?;
        if let Some(free) = &self.bad_free {
            free.fmt(f)?;
        }
        host_stack(f, "at error", &self.called)
    }
}

impl Display for BadFree {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "    {} : {:#x}", self.problem, self.address)?;
        match &self.nearest {
            Some(nearest) => nearest.fmt(f),
            None => Ok(()),
        }
    }
}

impl Display for Leak {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let heap = if self.device_heap {
            " on the device heap"
        } else {
            ""
        };
        let bytes = Grouped(self.bytes);
        writeln!(f, "Leaked {bytes} bytes at {:#x}{heap}", self.base)?;
        host_stack(f, "at allocation time", &self.allocated)
    }
}

/// The two lines that say where and who.
impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.frames.first() {
            Some(frame) => writeln!(f, "    at {}", Located(frame, self.offset))?,
            None => writeln!(f, "    at {}+{:#x}", self.function, self.offset)?,
        }
        let [tx, ty, tz] = self.thread;
        let [bx, by, bz] = self.block;
        writeln!(
            f,
            "    by thread ({tx},{ty},{tz}) in block ({bx},{by},{bz})"
        )
    }
}

struct Located<'a>(&'a SourceFrame, u32);

impl Display for Located<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(frame, offset) = self;
        let (function, file, line) = (&frame.function, &frame.file, frame.line);
        write!(f, "{function}+{offset:#x} in {file}:{line}")
    }
}

impl Display for Neighbour {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let which = if self.freed { "freed" } else { "nearest" };
        let (base, bytes) = (self.base, Grouped(self.bytes));
        let (distance, side) = match self.distance {
            Distance::Before(distance) => (distance, "before"),
            Distance::After(distance) => (distance, "after"),
            Distance::Inside(offset) if self.freed => (offset, "inside"),
            Distance::Inside(_) => {
                return writeln!(
                    f,
                    "    and is inside the {which} allocation at {base:#x} of size {bytes} bytes"
                );
            }
        };
        let distance = Grouped(distance);
        writeln!(
            f,
            "    and is {distance} bytes {side} the {which} allocation at {base:#x} of size {bytes} bytes"
        )
    }
}

fn device_frames(f: &mut Formatter<'_>, place: &Place) -> fmt::Result {
    for frame in place.frames.iter().skip(1) {
        writeln!(f, "        Device Frame: {}", Located(frame, place.offset))?;
    }
    Ok(())
}

fn host_stack(f: &mut Formatter<'_>, when: &str, stack: &HostStack) -> fmt::Result {
    if stack.frames.is_empty() {
        return Ok(());
    }
    writeln!(
        f,
        "    Saved host backtrace up to driver entry point {when}"
    )?;
    for frame in &stack.frames {
        writeln!(f, "        Host Frame: {frame}")?;
    }
    Ok(())
}

impl Display for HostFrame {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(function) = &self.function {
            write!(f, "{function} ")?;
        }
        if let Some((file, line)) = &self.source {
            write!(f, "in {file}:{line} ")?;
        }
        write!(f, "[{:#x}] in {}", self.offset, self.module)
    }
}

/// A number with a comma at every third digit.
struct Grouped(u64);

impl Display for Grouped {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
