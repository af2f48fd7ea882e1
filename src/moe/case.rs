//! The cases of a check: how many tokens a rank has, where they go, what is special.

use std::time::Duration;

use serde::Serialize;

use super::generate::Tokens;
use super::layer::Input;
use super::shape::{Layout, Router, Shape};
use super::steer::Steer;

/// How tokens fall on ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// The same number everywhere.
    Even(usize),
    /// About this many, odd, another number on each rank and in each iteration.
    Odd(usize),
    /// As odd, but one rank has none: another one in each iteration, and after the
    /// last rank nobody once.
    OneEmpty(usize),
    /// All on the last rank.
    LastOnly(usize),
}

impl Load {
    /// Tokens of `rank`.
    pub fn count(self, rank: usize, ranks: usize, iteration: u64) -> usize {
        let odd = |n: usize| (n + (7 * rank + 3 * iteration as usize) % 5) | 1;
        match self {
            Load::Even(n) => n,
            Load::Odd(n) => odd(n),
            Load::OneEmpty(n) => match ranks > 1 && rank == iteration as usize % (ranks + 1) {
                true => 0,
                false => odd(n),
            },
            Load::LastOnly(n) => match rank + 1 == ranks {
                true => odd(n * ranks.min(8)),
                false => 0,
            },
        }
    }
}

/// One case.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Case {
    pub name: &'static str,
    /// What it is for.
    pub why: &'static str,
    pub shape: Shape,
    pub layout: Layout,
    pub load: Load,
    pub steer: Steer,
    /// Copies an expert takes; more are dropped.
    pub capacity: Option<u32>,
    /// Delay one rank in each iteration, another one each time.
    pub delay: Duration,
    /// Iterations that reuse buffers, with other inputs each.
    pub iterations: u64,
}

/// What `rank` is given in `iteration`.
pub fn input(case: &Case, seed: u64, rank: usize, ranks: usize, iteration: u64) -> Input {
    let count = |rank| case.load.count(rank, ranks, iteration);
    let late = !case.delay.is_zero() && rank == iteration as usize % ranks;
    Input {
        tokens: Tokens::new(seed, iteration),
        first: (0..rank).map(count).sum(),
        count: count(rank),
        steer: case.steer,
        capacity: case.capacity,
        delay: if late { case.delay } else { Duration::ZERO },
    }
}

/// All tokens of an iteration as one rank's input.
pub fn single(case: &Case, seed: u64, ranks: usize, iteration: u64) -> Input {
    Input {
        first: 0,
        count: (0..ranks)
            .map(|rank| case.load.count(rank, ranks, iteration))
            .sum(),
        delay: Duration::ZERO,
        ..input(case, seed, 0, ranks, iteration)
    }
}

/// Rotating delay of a rank.
pub const DELAY: Duration = Duration::from_millis(100);

/// The named cases for `shape` and about `tokens` a rank, in one layout.
pub fn cases(shape: Shape, layout: Layout, tokens: usize) -> Vec<Case> {
    let plain = Case {
        name: "odd-counts",
        why: "odd token counts, another one on each rank and in each iteration",
        shape,
        layout,
        load: Load::Odd(tokens),
        steer: Steer::Free,
        capacity: None,
        delay: Duration::ZERO,
        iterations: 2,
    };
    let one = Shape {
        top_k: 1,
        router: Router::Softmax,
        ..shape
    };
    // Half of what an expert gets on average: something is always dropped.
    let average = tokens * shape.top_k / shape.experts;
    vec![
        plain,
        Case {
            name: "softmax",
            why: "the other router, without groups",
            shape: Shape {
                router: Router::Softmax,
                ..shape
            },
            load: Load::Even(tokens),
            ..plain
        },
        Case {
            name: "zero-token-rank",
            why: "a rank without tokens still serves its experts",
            load: Load::OneEmpty(tokens),
            ..plain
        },
        Case {
            name: "one-rank-sends",
            why: "all tokens on the last rank",
            load: Load::LastOnly(tokens),
            ..plain
        },
        Case {
            name: "empty-expert",
            why: "no token for an expert in the middle",
            steer: Steer::Avoid(shape.experts / 2),
            ..plain
        },
        Case {
            name: "one-expert",
            why: "all tokens to one expert, the others idle",
            shape: one,
            steer: Steer::Favour(shape.experts / 3),
            ..plain
        },
        Case {
            name: "skewed",
            why: "one expert in every token's choice: imbalance between ranks",
            steer: Steer::Favour(shape.experts - 1),
            ..plain
        },
        Case {
            name: "capacity-dropped",
            why: "more copies than an expert takes; the later ones are dropped",
            steer: Steer::Favour(1),
            capacity: Some((average / 2).max(2) as u32),
            ..plain
        },
        Case {
            name: "capacity-grown",
            why: "more copies than the iteration before left room for; buffers grow",
            load: Load::Odd(tokens),
            steer: Steer::Favour(1),
            ..plain
        },
        Case {
            name: "duplicate-experts",
            why: "a token that names an expert twice is computed and weighted twice",
            steer: Steer::Duplicate,
            ..plain
        },
        Case {
            name: "delays",
            why: "one rank 100 ms late, another one each time",
            delay: DELAY,
            iterations: 3,
            ..plain
        },
        Case {
            name: "reused-buffers",
            why: "iterations with other inputs in the same buffers",
            load: Load::OneEmpty(tokens),
            iterations: 4,
            ..plain
        },
    ]
}

/// Shapes with drawn sizes, most of them ragged for tiles and scale groups.
pub fn sweep(seed: u64, count: usize, largest: usize, experts: usize, align: usize) -> Vec<Shape> {
    (0..count as u64)
        .map(|i| {
            let draw = |stream: u64| super::generate::word(seed ^ (stream << 32), i) as usize;
            Shape {
                hidden: 16 + draw(1) % largest,
                intermediate: 16 + draw(2) % largest,
                experts,
                top_k: 1 + draw(3) % 3,
                align,
                ..Shape::small(experts)
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_possible_and_has_tokens_for_any_number_of_ranks() {
        for shape in [Shape::small(8), Shape::deepseek(), Shape::mixtral()] {
            for layout in Layout::ALL {
                for case in cases(shape, layout, 5) {
                    case.shape.check().unwrap();
                    for ranks in [1, 2, 4, 64] {
                        for iteration in 0..case.iterations {
                            let all = single(&case, 1, ranks, iteration);
                            assert!(all.count > 0, "{} on {ranks} ranks", case.name);
                            let last = input(&case, 1, ranks - 1, ranks, iteration);
                            assert_eq!(last.first + last.count, all.count);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn loads_are_what_their_names_say() {
        let counts = |load: Load, iteration| -> Vec<usize> {
            (0..4).map(|rank| load.count(rank, 4, iteration)).collect()
        };
        assert!(counts(Load::Odd(4), 0).iter().all(|n| n % 2 == 1));
        assert_ne!(counts(Load::Odd(4), 0), counts(Load::Odd(4), 1));
        assert_eq!(counts(Load::OneEmpty(4), 2)[2], 0);
        assert_eq!(
            counts(Load::OneEmpty(4), 2)
                .iter()
                .filter(|&&n| n == 0)
                .count(),
            1
        );
        assert_eq!(counts(Load::LastOnly(4), 0)[..3], [0, 0, 0]);
    }

    #[test]
    fn swept_shapes_differ_and_are_possible() {
        let shapes = sweep(7, 20, 300, 8, 4);
        assert!(shapes.iter().all(|s| s.check().is_ok()));
        assert!(shapes.windows(2).all(|w| w[0] != w[1]));
        assert_eq!(shapes, sweep(7, 20, 300, 8, 4));
    }
}
