//! Initial bytes of module variables.

use super::modifiers::bytes_of;
use super::{LoadError, Relocation};
use crate::ptx::ast::{InitValue, ScalarType, Variable};

/// Bytes of a variable whose array length its initialiser gives.
pub fn unsized_bytes(variable: &Variable) -> u64 {
    let element = u64::from(bytes_of(variable.ty)) * u64::from(variable.vector.max(1));
    let known = variable
        .dims
        .iter()
        .flatten()
        .fold(1u64, |product, dim| product.saturating_mul(*dim));
    let values = variable.init.len() as u64 * u64::from(bytes_of(variable.ty));
    values
        .checked_next_multiple_of(element.saturating_mul(known.max(1)).max(1))
        .unwrap_or(u64::MAX)
}

/// The image and the places in it that hold addresses.
pub fn build(variable: &Variable) -> Result<(Vec<u8>, Vec<Relocation>), LoadError> {
    let element = bytes_of(variable.ty) as usize;
    let mut image = Vec::with_capacity(variable.init.len() * element);
    let mut relocations: Vec<Relocation> = Vec::new();
    for value in &variable.init {
        let at = image.len() as u64;
        match value {
            InitValue::Int(number) => {
                image.extend_from_slice(&number.to_le_bytes()[..element.min(16)]);
            }
            InitValue::F32(bits) if variable.ty == ScalarType::F64 => {
                let wide = f64::from(f32::from_bits(*bits)).to_bits();
                image.extend_from_slice(&wide.to_le_bytes());
            }
            InitValue::F32(bits) => {
                image.extend_from_slice(&u64::from(*bits).to_le_bytes()[..element.min(8)]);
            }
            InitValue::F64(bits) if variable.ty == ScalarType::F32 => {
                let narrow = (f64::from_bits(*bits) as f32).to_bits();
                image.extend_from_slice(&narrow.to_le_bytes());
            }
            InitValue::F64(bits) => {
                image.extend_from_slice(&bits.to_le_bytes()[..element.min(8)]);
            }
            InitValue::Symbol {
                name,
                offset,
                mask: None,
                ..
            } if element == 8 => {
                relocations.push(Relocation {
                    offset: at,
                    symbol: name.clone(),
                    addend: *offset,
                });
                image.extend_from_slice(&[0; 8]);
            }
            InitValue::Symbol {
                name,
                offset,
                mask: Some(mask),
                ..
            } if element == 1 => {
                // Eight masked bytes in a row spell one pointer.
                if *mask == 0xff {
                    relocations.push(Relocation {
                        offset: at,
                        symbol: name.clone(),
                        addend: *offset,
                    });
                }
                image.push(0);
            }
            InitValue::Symbol { name, .. } => {
                return Err(LoadError {
                    line: variable.line,
                    message: format!(
                        "{}: the address of {name} does not fit an element of {element} bytes",
                        variable.name
                    ),
                });
            }
        }
    }
    Ok((image, relocations))
}
