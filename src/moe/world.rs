//! Which rank this process is, and where the job meets: the usual environment.
//!
//! | what | variables, the first that is set |
//! |---|---|
//! | rank | `RANK`, `OMPI_COMM_WORLD_RANK`, `PMI_RANK`, `SLURM_PROCID` |
//! | ranks | `WORLD_SIZE`, `OMPI_COMM_WORLD_SIZE`, `PMI_SIZE`, `SLURM_NTASKS` |
//! | rank on the host | `LOCAL_RANK`, `OMPI_COMM_WORLD_LOCAL_RANK`, `MPI_LOCALRANKID`, `SLURM_LOCALID` |
//! | ranks on the host | `LOCAL_WORLD_SIZE`, `OMPI_COMM_WORLD_LOCAL_SIZE`, `MPI_LOCALNRANKS`, `SLURM_NTASKS_PER_NODE` |
//! | store | `MASTER_ADDR`, `MASTER_PORT` |
//! | token | `KERNELGATE_TOKEN` |
//!
//! torchrun's agent listens on MASTER_PORT itself and says so with
//! `TORCHELASTIC_USE_AGENT_STORE=True`; the store then takes the next port.

use anyhow::{Context, Result};

use crate::exit::UsageError;

/// The port of a job whose launcher names none.
pub const PORT: u16 = 29_511;
/// Keeps other users of the network out of the job.
pub const TOKEN: &str = "KERNELGATE_TOKEN";

/// A rank's place in a job that something else started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct World {
    pub rank: usize,
    pub ranks: usize,
    /// Which device of this host.
    pub local_rank: usize,
    pub local_ranks: usize,
    pub host: String,
    pub port: u16,
    pub token: String,
}

const RANK: [&str; 4] = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];
const RANKS: [&str; 4] = [
    "WORLD_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "SLURM_NTASKS",
];
const LOCAL_RANK: [&str; 4] = [
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "SLURM_LOCALID",
];
const LOCAL_RANKS: [&str; 4] = [
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "SLURM_NTASKS_PER_NODE",
];

/// Reads an environment variable; a parameter so that tests bring their own.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The process environment.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl World {
    /// `None` where no launcher has set a rank and a number of ranks.
    ///
    /// # Errors
    /// [`UsageError`] where a variable is there and cannot be right, or missing.
    pub fn read(env: Environment<'_>) -> Result<Option<World>> {
        let (Some(rank), Some(ranks)) = (number(env, &RANK)?, number(env, &RANKS)?) else {
            return Ok(None);
        };
        if ranks == 0 || rank >= ranks || ranks > 65_536 {
            return usage(format!("rank {rank} of {ranks} ranks is impossible"));
        }
        let local_rank = number(env, &LOCAL_RANK)?.unwrap_or(0);
        let local_ranks = number(env, &LOCAL_RANKS)?.unwrap_or(local_rank + 1).max(1);
        let host = match env("MASTER_ADDR") {
            Some(host) => host,
            None if ranks <= local_ranks => "127.0.0.1".to_owned(),
            None => {
                return usage(
                    "MASTER_ADDR is not set; export the name of rank 0's host to every rank".into(),
                );
            }
        };
        let port = match number(env, &["MASTER_PORT"])? {
            None => PORT,
            Some(port) => u16::try_from(port)
                .ok()
                .filter(|&port| port > 0 && port < u16::MAX)
                .with_context(|| format!("MASTER_PORT={port} is no port"))?,
        };
        let agent = env("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|v| v == "True");
        let Some(token) = env(TOKEN) else {
            return usage(format!(
                "{TOKEN} is not set; export the same secret to every rank, such as \
                 {TOKEN}=$(openssl rand -hex 16)"
            ));
        };
        if !(8..=256).contains(&token.len()) {
            return usage(format!("{TOKEN} must have 8 to 256 characters"));
        }
        Ok(Some(World {
            rank,
            ranks,
            local_rank,
            local_ranks,
            host,
            port: if agent { port + 1 } else { port },
            token,
        }))
    }

    /// The variables that make a child this rank.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            ("RANK", self.rank.to_string()),
            ("WORLD_SIZE", self.ranks.to_string()),
            ("LOCAL_RANK", self.local_rank.to_string()),
            ("LOCAL_WORLD_SIZE", self.local_ranks.to_string()),
            ("MASTER_ADDR", self.host.clone()),
            ("MASTER_PORT", self.port.to_string()),
            (TOKEN, self.token.clone()),
        ]
    }
}

fn usage<T>(message: String) -> Result<T> {
    Err(UsageError(message).into())
}

fn number(env: Environment<'_>, names: &[&str]) -> Result<Option<usize>> {
    let Some((name, value)) = names.iter().find_map(|name| Some((name, env(name)?))) else {
        return Ok(None);
    };
    match value.trim().parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => usage(format!("{name}={value} is no number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<World>> {
        World::read(&|name| {
            let found = variables.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    const SECRET: (&str, &str) = (TOKEN, "0123456789abcdef");

    #[test]
    fn each_launchers_variables_are_understood() {
        let torchrun = [
            ("RANK", "3"),
            ("WORLD_SIZE", "4"),
            ("LOCAL_RANK", "1"),
            ("LOCAL_WORLD_SIZE", "2"),
            ("MASTER_ADDR", "node0"),
            ("MASTER_PORT", "29500"),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
            SECRET,
        ];
        let world = read(&torchrun).unwrap().unwrap();
        assert_eq!((world.rank, world.ranks, world.local_rank), (3, 4, 1));
        assert_eq!((world.host.as_str(), world.port), ("node0", 29_501));
        let mpirun = [
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
            SECRET,
        ];
        let world = read(&mpirun).unwrap().unwrap();
        assert_eq!((world.rank, world.host.as_str()), (1, "127.0.0.1"));
        assert_eq!(world.port, PORT);
        let srun = [
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "16"),
            ("SLURM_LOCALID", "0"),
            ("MASTER_ADDR", "n1"),
            SECRET,
        ];
        assert_eq!(read(&srun).unwrap().unwrap().ranks, 16);
        assert_eq!(read(&[]).unwrap(), None);
        let again = read(
            &world
                .variables()
                .iter()
                .map(|(n, v)| (*n, v.as_str()))
                .collect::<Vec<_>>(),
        );
        assert_eq!(again.unwrap().unwrap(), world);
    }

    #[test]
    fn what_cannot_be_right_is_refused_with_advice() {
        let base = [
            ("RANK", "0"),
            ("WORLD_SIZE", "2"),
            ("LOCAL_WORLD_SIZE", "1"),
        ];
        let with = |more: &[(&str, &str)]| {
            let all: Vec<(&str, &str)> = more.iter().chain(&base).copied().collect();
            read(&all).map(drop).unwrap_err().to_string()
        };
        assert!(with(&[SECRET]).contains("MASTER_ADDR"));
        assert!(with(&[("MASTER_ADDR", "x")]).contains(TOKEN));
        assert!(with(&[("MASTER_ADDR", "x"), (TOKEN, "short")]).contains("8 to 256"));
        assert!(with(&[("RANK", "2"), ("MASTER_ADDR", "x"), SECRET]).contains("rank 2 of 2"));
        assert!(with(&[("RANK", "one"), SECRET]).contains("RANK=one"));
        assert!(with(&[("MASTER_ADDR", "x"), ("MASTER_PORT", "70000"), SECRET]).contains("70000"));
    }
}
