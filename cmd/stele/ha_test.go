package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// runScript runs all steps in one shell. The script of examples/ha, which they run, has an address of its own, and ends what it
// has started.
func (t *tour) runScript(test *testing.T, dir string, env []string) {
	withEtcd(test)
	host := freeHost(test)
	env = append(env, "HA_HOST="+host, "HA_BALANCER=balancer", "HA_CHECK_EVERY=100ms", "HA_SHUTDOWN_DELAY=500ms")
	test.Cleanup(func() {
		down := exec.Command(filepath.Join(dir, "examples", "ha", "run"), "down")
		down.Dir, down.Env = dir, env
		if out, err := down.CombinedOutput(); err != nil {
			test.Errorf("%v\n%s", err, out)
		}
		if test.Failed() {
			logs, _ := filepath.Glob(filepath.Join(dir, "ha-data", "*", "log"))
			out, _ := exec.Command("tail", append([]string{"-n", "30"}, logs...)...).CombinedOutput()
			test.Logf("%s", out)
		}
	})
	steps := t.steps()
	shell(test, dir, env, steps)
	for _, s := range steps {
		s.output = strings.NewReplacer(host, "127.0.0.1", dir, "~/stele").Replace(s.output)
	}
}

// freeHost returns an address of this machine at which the ports of examples/ha are free. It is as long as 127.0.0.1, so that
// tables are as wide as with that.
func freeHost(t *testing.T) string {
	t.Helper()
	for range 1000 {
		host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(9), rand.IntN(10), 1+rand.IntN(9))
		if balancer, err := net.Listen("tcp", host+":6443"); err == nil {
			balancer.Close()
			return host
		}
	}
	t.Fatal("the port 6443 is in use at all addresses")
	return ""
}
