//! The TLS settings of a target, from flags.

use std::path::Path;

use anyhow::Context;
use hotlap_load::plan::{Identity, Target, Tls};
use hotlap_load::tls::{self, AES_128_GCM};
use hotlap_servers::files;
use hotlap_servers::running::HOST;

use crate::cli::TlsArgs;
use crate::exit::usage;

/// The settings for servers that hotlap starts with its own certificate. This certificate is
/// trusted, unless a flag names other authorities.
pub fn settings(args: &TlsArgs) -> anyhow::Result<Tls> {
    let mut tls = Tls::with(HOST.to_owned());
    // Servers prefer different ciphers of different cost, and some cannot be configured.
    tls.ciphers = AES_128_GCM.map(str::to_owned).to_vec();
    apply(&mut tls, args)?;
    Ok(tls)
}

/// Applies the flags to a target. If the target does not use TLS, flags other than `--insecure`
/// are a usage error.
pub fn complete(target: &mut Target, args: &TlsArgs) -> anyhow::Result<()> {
    let Some(tls) = &mut target.tls else {
        let is_given = args.cacert.is_some() || args.cert.is_some() || args.sni.is_some();
        return match is_given || args.tls_resume || !args.ciphers.is_empty() {
            true => usage(
                "--cacert, --cert, --sni, --ciphers and --tls-resume need https: write https:// in \
                 the URL, or leave them out",
            ),
            false => Ok(()),
        };
    };
    apply(tls, args)
}

fn apply(tls: &mut Tls, args: &TlsArgs) -> anyhow::Result<()> {
    tls.insecure = args.insecure;
    if !args.ciphers.is_empty() {
        tls.ciphers.clone_from(&args.ciphers);
    }
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
    let found = tls::certificates(&read(file)?);
    found.or_else(|why| usage(format!("{}: {why}", file.display())))
}

fn private_key(file: &Path) -> anyhow::Result<Vec<u8>> {
    let found = tls::private_key(&read(file)?);
    found.or_else(|why| usage(format!("{}: {why}", file.display())))
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    files::read(file).with_context(|| format!("cannot read {}", file.display()))
}
