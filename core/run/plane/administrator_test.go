package plane_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

const day = 24 * time.Hour

// administered is a folder of a control plane that is started and stopped.
type administered struct {
	*testing.T
	dir, revoked string
}

func (a *administered) start() *planetest.Plane {
	a.Helper()
	c := plane.Config{Listener: &pipes{make(chan net.Conn), make(chan struct{})}}
	c.Authentication.RevokedCertificates, c.Authentication.ReloadEvery = a.revoked, 10*time.Second
	return planetest.Start(a, planetest.Options{Backend: new(memlog.Store).Open(nil), Bundle: string(bundle["bundle.cue"].Data), Dir: a.dir, Config: c})
}

// stop stops a plane, and waits for the queues of its controllers.
func (a *administered) stop(p *planetest.Plane) {
	p.Stop()
	time.Sleep(time.Minute)
}

// certificate is that of the administrator's kubeconfig, which only the owner can read.
func (a *administered) certificate() *x509.Certificate {
	a.Helper()
	path := filepath.Join(a.dir, "admin.kubeconfig")
	info, err := os.Stat(path)
	if err != nil {
		a.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		a.Errorf("its mode is %v", info.Mode())
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		a.Fatal(err)
	}
	block, _ := pem.Decode(config.AuthInfos["admin"].ClientCertificateData)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		a.Fatal(err)
	}
	return c
}

func TestTheCertificateOfTheAdministratorIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &administered{T: t, dir: t.TempDir(), revoked: filepath.Join(t.TempDir(), "revoked")}
		if err := os.WriteFile(a.revoked, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		renewed := func(when string, before *x509.Certificate, want bool) *x509.Certificate {
			t.Helper()
			now := a.certificate()
			if got := !now.Equal(before); got != want {
				t.Errorf("%s: renewed is %v", when, got)
			}
			if left := time.Until(now.NotAfter); left < 30*day-time.Hour || left > 90*day {
				t.Errorf("%s: it is valid for %v", when, left)
			}
			return now
		}
		p := a.start()
		first := a.certificate()
		if life := time.Until(first.NotAfter); life < 89*day || life > 90*day {
			t.Errorf("it is valid for %v", life)
		}
		a.stop(p)

		time.Sleep(time.Until(first.NotAfter) - 30*day - 2*time.Minute)
		p = a.start()
		renewed("at a start, before it is due", first, false)
		time.Sleep(5 * time.Minute)
		second := renewed("while the server runs, when it is due", first, true)
		written := modified(t, a)
		time.Sleep(5 * time.Minute)
		if renewed("afterwards", second, false); !modified(t, a).Equal(written) {
			t.Error("the kubeconfig was written without need")
		}

		if err := os.WriteFile(a.revoked, fmt.Appendf(nil, "%x\n", sha256.Sum256(second.Raw)), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		third := renewed("when it is revoked", second, true)
		a.stop(p)

		time.Sleep(200 * day)
		a.stop(a.start())
		renewed("at a start after it has expired", third, true)
	})
}

func modified(t *testing.T, a *administered) time.Time {
	t.Helper()
	info, err := os.Stat(filepath.Join(a.dir, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}

// A kubeconfig that somebody has made readable is made private again, and else left alone.
func TestTheKubeconfigOfTheAdministratorIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &administered{T: t, dir: t.TempDir()}
		a.stop(a.start())
		path := filepath.Join(a.dir, "admin.kubeconfig")
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		a.stop(a.start())
		a.certificate()
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
			t.Errorf("it has changed: %v", err)
		}
	})
}

// The server renews its own certificate also if no client connects, so that a folder that cannot be written is noticed in time.
func TestTheServersOwnCertificateIsRenewedWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &administered{T: t, dir: t.TempDir()}
		certificate := func() *x509.Certificate {
			t.Helper()
			text, err := os.ReadFile(filepath.Join(a.dir, "pki", "server.crt"))
			if err != nil {
				t.Fatal(err)
			}
			block, _ := pem.Decode(text)
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		a.stop(a.start())
		first := certificate()
		time.Sleep(time.Until(first.NotAfter) - 30*day - 2*time.Minute)
		p := a.start()
		if !certificate().Equal(first) {
			t.Error("it was renewed before it was due")
		}
		time.Sleep(5 * time.Minute)
		if now := certificate(); now.Equal(first) || time.Until(now.NotAfter) < 300*day {
			t.Errorf("it is valid until %v", now.NotAfter)
		}
		a.stop(p)
	})
}
