//! The self-signed certificate of servers that are started with TLS.
//!
//! The certificate is created once and kept, because some toolchains build it into a keystore.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hotlap_load::tls::{self, self_signed};
use serde::{Deserialize, Serialize};

/// The names that the certificate is valid for.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The names of the files in the certificate's folder.
const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "key.pem";

/// A certificate with an ECDSA key on the curve P-256, which TLS 1.3 requires implementations to
/// support (RFC 8446 section 9.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// The file with the certificate (PEM).
    pub file: PathBuf,
    /// The file with the private key (PEM, PKCS #8). Only the user may read it.
    pub key_file: PathBuf,
    /// The certificate, in DER.
    pub der: Vec<u8>,
}

impl Certificate {
    /// The name of the certificate's folder in hotlap's cache.
    pub const FOLDER: &str = "tls";

    /// Returns the certificate in a folder. If the folder has no certificate, creates the folder
    /// with a certificate.
    ///
    /// # Errors
    /// If the folder cannot be written, has other files, or lacks a valid certificate or the key.
    /// The error names the folder.
    pub fn kept_in(folder: &Path) -> io::Result<Self> {
        if !folder.join(CERTIFICATE).exists() {
            make(folder).map_err(|error| named("make a certificate in", folder, &error))?;
        }
        let (file, key_file) = (folder.join(CERTIFICATE), folder.join(KEY));
        let read = || -> io::Result<Vec<u8>> {
            let found = tls::certificates(&fs::read(&file)?).map_err(io::Error::other)?;
            fs::metadata(&key_file)?;
            found.into_iter().next().ok_or_else(|| io::Error::other("the file has no certificate"))
        };
        let der = read().map_err(|error| named("use the certificate in", folder, &error))?;
        Ok(Self { file, key_file, der })
    }
}

fn named(what: &str, folder: &Path, error: &io::Error) -> io::Error {
    io::Error::other(format!("cannot {what} {}: {error}", folder.display()))
}

/// Creates a certificate in a temporary folder and renames the folder. If several first runs happen
/// at the same time, all of them use one certificate.
fn make(folder: &Path) -> io::Result<()> {
    let made = folder.with_extension(std::process::id().to_string());
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&made)?;
    let generated = self_signed(&NAMES, 4096).map_err(io::Error::other)?;
    write(&made.join(KEY), &text("PRIVATE KEY", &generated.key))?;
    write(&made.join(CERTIFICATE), &text("CERTIFICATE", &generated.der))?;
    match fs::rename(&made, folder) {
        // A parallel run was faster, so the folder has the certificate of that run.
        Err(_) if folder.join(CERTIFICATE).exists() => fs::remove_dir_all(&made),
        renamed => renamed,
    }
}

fn write(file: &Path, text: &str) -> io::Result<()> {
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file)?;
    file.write_all(text.as_bytes())
}

/// Encodes DER as text (RFC 7468 section 2).
fn text(label: &str, der: &[u8]) -> String {
    let encoded = BASE64_STANDARD.encode(der);
    let lines: Vec<&str> =
        encoded.as_bytes().chunks(64).filter_map(|line| str::from_utf8(line).ok()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::thread;

    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};

    use super::*;

    #[test]
    fn a_certificate_is_made_once_and_only_the_user_may_read_its_key() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("cache/tls");
        let made = Certificate::kept_in(&folder).unwrap();
        assert_eq!(Certificate::kept_in(&folder).unwrap(), made);
        assert_eq!(fs::metadata(&made.key_file).unwrap().permissions().mode() & 0o777, 0o600);
        let key = tls::private_key(&fs::read(&made.key_file).unwrap()).unwrap();
        let random = SystemRandom::new();
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &key, &random).unwrap();
    }

    #[test]
    fn several_first_runs_at_the_same_time_use_one_certificate() {
        // Two runs never have the same process id, so this call stands in for a slower run.
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("tls");
        let first = Certificate::kept_in(&folder).unwrap();
        make(&folder).unwrap();
        assert_eq!(Certificate::kept_in(&folder).unwrap(), first);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "nothing is left behind");
        let all: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| Certificate::kept_in(&folder).unwrap())).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(all.iter().all(|one| *one == first));
    }

    #[test]
    fn a_folder_that_cannot_be_used_is_named() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("tls");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(CERTIFICATE), "not a certificate").unwrap();
        let why = Certificate::kept_in(&folder).unwrap_err().to_string();
        assert!(why.starts_with("cannot use the certificate in"), "{why}");
        assert!(why.contains(&folder.display().to_string()), "{why}");
    }
}
