"""An emulated cluster, and programs that run with directories bound to it."""
import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ.get("HYPERLOOP_BIN", "build/bin")).parent.absolute()
CTL = BUILD / "bin/hyperloopctl"
PLUGIN = BUILD / "lib/librocksdb_hyperloop.so"
STORE = BUILD / "examples/store"
PATIENCE = 600  # seconds after which a program is taken to hang


class Bound(unittest.TestCase):
    REPLICAS = 2
    REGION = "48M"

    def setUp(self):
        # The directories above decide whether a cluster's directory is trusted.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hyperloop-bound-", dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.db = self.folder / "db"
        self.uri = self.start_cluster("cluster")

    def start_cluster(self, name):
        """The URI of a new cluster, which ends with the test."""
        where = self.folder / name
        self.addCleanup(subprocess.run, [CTL, "cluster", "stop", "--dir", where], capture_output=True)
        done = self.run_plain(CTL, "cluster", "start", "--dir", where, "--replicas", str(self.REPLICAS), "--region-size",
                              self.REGION, "--spin-us", "0", "--priority", "none")
        return done.stdout.splitlines()[-1].removeprefix("uri:").strip() + "&journal_size=8M"

    def bind(self, *pairs):
        return ";".join(f"{directory}={uri}" for directory, uri in pairs or [(self.db, self.uri)])

    def environment(self, bind=None, preload=PLUGIN):
        plain = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
        return {**plain, "LD_PRELOAD": str(preload), "HYPERLOOP_BIND": bind if bind is not None else self.bind()}

    def run_bound(self, *command, bind=None, status=0, **more):
        """Runs the command with the plugin preloaded and the directories bound."""
        return self.run_plain(*command, env=self.environment(bind), status=status, **more)

    def run_plain(self, *command, status=0, **more):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=PATIENCE, **more)
        self.assertEqual(done.returncode, status, f"{command}:\n{done.stdout}{done.stderr}")
        return done

    @contextlib.contextmanager
    def started(self, *command, **more):
        """The command while it runs; it is killed in the end."""
        process = subprocess.Popen([str(word) for word in command], text=True, **more)
        try:
            yield process
        finally:
            process.kill()
            process.wait(PATIENCE)
            for stream in (process.stdout, process.stderr):
                if stream:
                    stream.close()

    def export(self, replica=0, cluster="cluster"):
        """The directory with what a replica holds."""
        to = pathlib.Path(tempfile.mkdtemp(prefix=f"replica{replica}-", dir=self.folder)) / "db"
        self.run_plain(CTL, "export", "--dir", self.folder / cluster, "--replica", str(replica), "--to", to, "--live")
        return to

    def expect_refused(self, command, *reasons, bind=None, directory=None):
        """It fails, says why, and makes no database."""
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=PATIENCE,
                              env=self.environment(bind))
        said = done.stdout + done.stderr
        self.assertGreater(done.returncode, 0, said)
        for reason in reasons:
            self.assertIn(reason, said)
        self.assertFalse(((directory or self.db) / "CURRENT").exists(), "the database was made")
