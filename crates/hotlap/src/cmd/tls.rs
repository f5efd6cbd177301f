//! The TLS settings of a target, from flags.

use std::fs;
use std::path::Path;

use anyhow::Context;
use hotlap_load::plan::{Identity, Target};
use hotlap_load::tls::pem;

use crate::cli::TlsArgs;
use crate::exit::usage;

/// Completes a target that uses TLS.
///
/// # Errors
/// When a file cannot be read or has no certificate or key, or a flag has no meaning because the
/// target does not use TLS.
pub fn complete(target: &mut Target, args: &TlsArgs) -> anyhow::Result<()> {
    let Some(tls) = &mut target.tls else {
        let is_given = args.cacert.is_some() || args.cert.is_some() || args.sni.is_some();
        return match is_given || args.tls_resume {
            true => usage("--cacert, --cert, --sni and --tls-resume need a URL with https"),
            false => Ok(()),
        };
    };
    tls.insecure = args.insecure;
    tls.resumes = args.tls_resume;
    if let Some(name) = &args.sni {
        tls.server_name.clone_from(name);
    }
    if let Some(file) = &args.cacert {
        tls.authorities = certificates(file)?;
    }
    if let (Some(cert), Some(key)) = (&args.cert, &args.key) {
        tls.identity = Some(Identity { chain: certificates(cert)?, key: private_key(key)? });
    }
    Ok(())
}

fn certificates(file: &Path) -> anyhow::Result<Vec<Vec<u8>>> {
    let found = pem::certificates(&read(file)?);
    found.or_else(|why| usage(format!("{}: {why}", file.display())))
}

fn private_key(file: &Path) -> anyhow::Result<Vec<u8>> {
    let found = pem::private_key(&read(file)?);
    found.or_else(|why| usage(format!("{}: {why}", file.display())))
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}
