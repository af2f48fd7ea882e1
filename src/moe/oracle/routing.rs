//! The router, in f64.
//!
//! Softmax chooses by the logits themselves: no rounding, one right answer. Sigmoid
//! chooses by computed scores: where two are closer than their rounding errors,
//! either choice is right. Weights are compared with a relative bound: two uses of
//! exp (at most 4 ulp each with its reduction), an addition and a division for a
//! score, top_k additions for the sum, a division and a product.

use super::Judge;
use crate::gemm::bound::U32;
use crate::moe::finding::{Stage, TokenAt};
use crate::moe::shape::{Router, Shape};
use crate::moe::steer::Steer;

/// Relative error of a routing weight.
pub fn weight_bound(top_k: usize) -> f64 {
    (24 + 2 * top_k) as f64 * U32
}

/// Absolute error of a computed choice: score ≤ 1 plus a small bias.
const CHOICE: f64 = 16.0 * U32;

pub fn check(judge: &Judge<'_>) {
    let (layer, flight) = (judge.layer, &judge.seen.flight);
    if flight.input.steer == Steer::Duplicate {
        return; // given, not computed
    }
    let bias = crate::moe::generate::bias(&layer.shape, layer.seed);
    let k = layer.shape.top_k;
    for token in 0..flight.input.count {
        let logits = flight.input.steer.logits(
            &layer.shape,
            &flight.input.tokens,
            flight.input.first + token,
        );
        let (index, weight) = (
            &flight.index[token * k..][..k],
            &flight.weight[token * k..][..k],
        );
        if let Err(detail) = judge_token(&layer.shape, &logits, &bias, index, weight) {
            let at = TokenAt {
                rank: layer.rank,
                token,
            };
            let expert = index.first().map(|&e| e as usize);
            judge.report(Stage::Routing, layer.rank, expert, Some(at), detail);
        }
    }
}

/// Judges one token's choice and weights.
pub fn judge_token(
    shape: &Shape,
    logits: &[f32],
    bias: &[f32],
    index: &[u32],
    weight: &[f32],
) -> Result<(), String> {
    let mut taken = vec![false; shape.experts];
    for &expert in index {
        match taken.get_mut(expert as usize) {
            Some(taken) if !*taken => *taken = true,
            Some(_) => return Err(format!("expert {expert} is chosen twice")),
            None => return Err(format!("expert {expert} of {} is chosen", shape.experts)),
        }
    }
    let sigmoid = |x: f32| 1.0 / (1.0 + (-f64::from(x)).exp());
    let (choices, slack): (Vec<f64>, f64) = match shape.router {
        Router::Softmax => (logits.iter().map(|&l| f64::from(l)).collect(), 0.0),
        Router::Sigmoid { .. } => (
            logits
                .iter()
                .zip(bias)
                .map(|(&l, &b)| sigmoid(l) + f64::from(b))
                .collect(),
            CHOICE,
        ),
    };
    let (surely, possibly) = groups(shape, &choices);
    let mut left: Vec<bool> = surely.clone();
    for (slot, &expert) in index.iter().enumerate() {
        let e = expert as usize;
        if !possibly[e] {
            return Err(format!(
                "slot {slot} is expert {e}, whose group is not among the best"
            ));
        }
        left[e] = false;
        let open = (0..shape.experts).filter(|&o| left[o]);
        let best = open.max_by(|&x, &y| choices[x].total_cmp(&choices[y]).then(y.cmp(&x)));
        if let Some(best) = best
            && (choices[best] > choices[e] + slack
                || (slack == 0.0 && choices[best] == choices[e] && best < e))
        {
            return Err(format!(
                "slot {slot} is expert {e} with {:.9}, expert {best} has {:.9}",
                choices[e], choices[best]
            ));
        }
    }
    let (scores, scaling): (Vec<f64>, f64) = match shape.router {
        Router::Softmax => {
            let top = f64::from(logits[index[0] as usize]);
            let score = |&e: &u32| (f64::from(logits[e as usize]) - top).exp();
            (index.iter().map(score).collect(), 1.0)
        }
        Router::Sigmoid { scaling, .. } => (
            index.iter().map(|&e| sigmoid(logits[e as usize])).collect(),
            f64::from(scaling),
        ),
    };
    let total: f64 = scores.iter().sum();
    for (slot, (&got, score)) in weight.iter().zip(&scores).enumerate() {
        let want = score / total * scaling;
        let error = (f64::from(got) - want).abs();
        let gate = weight_bound(shape.top_k) * want + f64::from(f32::MIN_POSITIVE);
        let inside = error <= gate;
        if !inside {
            return Err(format!(
                "the weight of slot {slot} is {got:e}, want {want:e}, error {error:.3e}, gate {gate:.3e}"
            ));
        }
    }
    Ok(())
}

/// For each expert: whether its group is chosen for sure, and whether it may be.
fn groups(shape: &Shape, choices: &[f64]) -> (Vec<bool>, Vec<bool>) {
    let Router::Sigmoid {
        groups, top_groups, ..
    } = shape.router
    else {
        return (vec![true; shape.experts], vec![true; shape.experts]);
    };
    let size = shape.experts / groups;
    let scores: Vec<f64> = choices
        .chunks(size)
        .map(|group| {
            let mut sorted = group.to_vec();
            sorted.sort_by(|x, y| y.total_cmp(x));
            sorted.iter().take(2).sum()
        })
        .collect();
    let beaten_by =
        |g: usize, slack: f64| scores.iter().filter(|&&s| s > scores[g] + slack).count();
    let not_below =
        |g: usize, slack: f64| scores.iter().filter(|&&s| s >= scores[g] - slack).count();
    let per_expert = |chosen: &dyn Fn(usize) -> bool| {
        (0..shape.experts)
            .map(|e| chosen(e / size))
            .collect::<Vec<bool>>()
    };
    (
        per_expert(&|g| not_below(g, 4.0 * CHOICE) <= top_groups),
        per_expert(&|g| beaten_by(g, 4.0 * CHOICE) < top_groups),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moe::generate::{Tokens, bias};

    /// The router again, without a warp: sort everything.
    fn route(shape: &Shape, logits: &[f32], bias: &[f32]) -> (Vec<u32>, Vec<f32>) {
        let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
        let choice = |e: usize| match shape.router {
            Router::Softmax => logits[e],
            Router::Sigmoid { .. } => sigmoid(logits[e]) + bias[e],
        };
        let mut open: Vec<usize> = (0..shape.experts).collect();
        if let Router::Sigmoid {
            groups, top_groups, ..
        } = shape.router
        {
            let size = shape.experts / groups;
            let score = |g: usize| {
                let mut best: Vec<f32> = (g * size..(g + 1) * size).map(choice).collect();
                best.sort_by(|x, y| y.total_cmp(x));
                best[0] + best.get(1).copied().unwrap_or(0.0)
            };
            let mut order: Vec<usize> = (0..groups).collect();
            order.sort_by(|&x, &y| score(y).total_cmp(&score(x)));
            order.truncate(top_groups);
            open.retain(|e| order.contains(&(e / size)));
        }
        open.sort_by(|&x, &y| choice(y).total_cmp(&choice(x)));
        open.truncate(shape.top_k);
        let score = |e: usize| match shape.router {
            Router::Softmax => (logits[e] - logits[open[0]]).exp(),
            Router::Sigmoid { .. } => sigmoid(logits[e]),
        };
        let total: f32 = open.iter().map(|&e| score(e)).sum();
        let scaling = match shape.router {
            Router::Softmax => 1.0,
            Router::Sigmoid { scaling, .. } => scaling,
        };
        let weights = open.iter().map(|&e| score(e) / total * scaling).collect();
        (open.iter().map(|&e| e as u32).collect(), weights)
    }

    #[test]
    fn right_choices_pass_and_each_kind_of_wrong_one_is_refused() {
        for shape in [
            Shape::small(8),
            Shape::deepseek(),
            Shape::mixtral(),
            Shape {
                router: Router::Softmax,
                ..Shape::small(8)
            },
        ] {
            let bias = bias(&shape, 1);
            for token in 0..200 {
                let logits = Tokens::new(1, 0).logits(&shape, token);
                let (index, weight) = route(&shape, &logits, &bias);
                let verdict = judge_token(&shape, &logits, &bias, &index, &weight);
                assert_eq!(verdict, Ok(()), "token {token} of {shape}");
                let judged = |index: &[u32], weight: &[f32]| {
                    judge_token(&shape, &logits, &bias, index, weight).is_err()
                };
                let mut swapped = index.clone();
                swapped.swap(0, 1);
                let mut twice = index.clone();
                twice[1] = twice[0];
                let mut other = index.clone();
                let absent = (0..shape.experts as u32)
                    .find(|e| !index.contains(e))
                    .unwrap();
                *other.last_mut().unwrap() = absent;
                let mut off = weight.clone();
                off[0] *= 1.0 + 1e-5;
                let mut rotated = weight.clone();
                rotated.rotate_left(1);
                let nan = vec![f32::NAN; weight.len()];
                assert!(judged(&swapped, &weight) && judged(&twice, &weight));
                assert!(judged(&index, &off) && judged(&index, &rotated) && judged(&index, &nan));
                // The next best expert is at least 2^-19 of a logit worse.
                let closest = judged(&other, &weight);
                assert!(closest, "token {token}: expert {absent} accepted");
            }
        }
    }
}
