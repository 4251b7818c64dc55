//! A Unix socket between a client and the real server, which can lose the client or fall silent.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Default)]
struct Shared {
    /// The client's side of each connection, and the server's.
    pairs: Mutex<Vec<(UnixStream, UnixStream)>>,
    silent: AtomicBool,
    /// So many of the first connections are silent for ever.
    forgotten: AtomicUsize,
    made: AtomicUsize,
    /// The newest connection on which something waits to pass, counted from one.
    holding: AtomicUsize,
    refusing: AtomicBool,
}

impl Shared {
    fn is_silent(&self, number: usize) -> bool {
        self.silent.load(Ordering::SeqCst) || number < self.forgotten.load(Ordering::SeqCst)
    }
}

pub struct Proxy {
    shared: Arc<Shared>,
}

impl Proxy {
    /// Listens as a server's socket in `folder` would, for the server whose socket is `server`.
    pub fn start(folder: &Path, server: PathBuf) -> Proxy {
        let listener = UnixListener::bind(folder.join(".s.PGSQL.5432")).unwrap();
        let shared = Arc::new(Shared::default());
        let proxy = Proxy { shared: shared.clone() };
        std::thread::spawn(move || {
            for (number, client) in listener.incoming().enumerate() {
                if shared.refusing.load(Ordering::SeqCst) {
                    continue;
                }
                let (client, server) = (client.unwrap(), UnixStream::connect(&server).unwrap());
                shared.made.store(number + 1, Ordering::SeqCst);
                forward(number, client.try_clone().unwrap(), server.try_clone().unwrap(), shared.clone());
                forward(number, server.try_clone().unwrap(), client.try_clone().unwrap(), shared.clone());
                shared.pairs.lock().unwrap().push((client, server));
            }
        });
        proxy
    }

    /// The clients lose their connections; the server does not notice.
    pub fn cut(&self) {
        for (client, _) in self.shared.pairs.lock().unwrap().iter() {
            let _ = client.shutdown(Shutdown::Both);
        }
    }

    pub fn speak_again(&self) {
        self.shared.silent.store(false, Ordering::SeqCst);
    }

    /// Both sides lose their connections, and no client gets a new one until it is allowed again.
    pub fn refuse(&self, refuse: bool) {
        self.shared.refusing.store(refuse, Ordering::SeqCst);
        for (client, server) in self.shared.pairs.lock().unwrap().drain(..) {
            let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
        }
    }

    /// As a router that lost its table: what goes through the connections that there are is dropped, and nobody is told.
    /// New ones work.
    pub fn forget(&self) {
        self.shared.forgotten.store(self.shared.made.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Whether something came on the newest connection since it fell silent.
    pub fn holds_something(&self) -> bool {
        self.shared.holding.load(Ordering::SeqCst) == self.shared.made.load(Ordering::SeqCst)
    }

    /// From now on nothing passes in either direction.
    pub fn fall_silent(&self) {
        self.shared.silent.store(true, Ordering::SeqCst);
    }
}

/// An end of `from` is not passed on: that is the point of `cut`.
fn forward(number: usize, mut from: UnixStream, mut to: UnixStream, shared: Arc<Shared>) {
    std::thread::spawn(move || {
        let mut buffer = [0; 8192];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            while shared.is_silent(number) {
                shared.holding.fetch_max(number + 1, Ordering::SeqCst);
                std::thread::park_timeout(Duration::from_millis(20));
            }
            if to.write_all(&buffer[..count]).is_err() {
                return;
            }
        }
    });
}
