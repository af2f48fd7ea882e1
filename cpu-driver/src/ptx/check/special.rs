//! Names that PTX itself declares (PTX ISA 9.0, "Special Registers").

const SCALARS: &[&str] = &[
    "%laneid",
    "%warpid",
    "%nwarpid",
    "%smid",
    "%nsmid",
    "%gridid",
    "%is_explicit_cluster",
    "%cluster_ctarank",
    "%cluster_nctarank",
    "%lanemask_eq",
    "%lanemask_le",
    "%lanemask_lt",
    "%lanemask_ge",
    "%lanemask_gt",
    "%clock",
    "%clock_hi",
    "%clock64",
    "%globaltimer",
    "%globaltimer_lo",
    "%globaltimer_hi",
    "%reserved_smem_offset_begin",
    "%reserved_smem_offset_end",
    "%reserved_smem_offset_cap",
    "%total_smem_size",
    "%aggr_smem_size",
    "%dynamic_smem_size",
    "%current_graph_exec",
    "WARP_SZ",
];

const VECTORS: &[&str] = &[
    "%tid",
    "%ntid",
    "%ctaid",
    "%nctaid",
    "%clusterid",
    "%nclusterid",
    "%cluster_ctaid",
    "%cluster_nctaid",
];

/// With the number that follows: `%envreg0` to `%envreg31`.
const NUMBERED: &[(&str, u32)] = &[("%envreg", 32), ("%pm", 8), ("%reserved_smem_offset_", 2)];

/// Is it a special register, a component of one, or a built-in constant?
pub fn is_known(name: &str) -> bool {
    if let Some((vector, "x" | "y" | "z" | "w")) = name.rsplit_once('.') {
        return VECTORS.contains(&vector);
    }
    SCALARS.contains(&name)
        || NUMBERED.iter().any(|(prefix, count)| {
            let number = name.strip_prefix(prefix);
            let number = number.map(|number| number.strip_suffix("_64").unwrap_or(number));
            number
                .and_then(|number| number.parse::<u32>().ok())
                .is_some_and(|number| number < *count)
        })
}
