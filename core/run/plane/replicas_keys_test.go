package plane_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/resources/replicas"
	"stele.dev/stele/core/run/controllers"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/memlog"
)

// newKeys writes a new signing key to a file, and returns its name.
func newKeys(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sa.key")
	if _, err := planetest.WriteKeys(file); err != nil {
		t.Fatal(err)
	}
	return file
}

// appendKeys adds the keys of another file to a file.
func appendKeys(t *testing.T, file, other string) {
	t.Helper()
	first, err1 := os.ReadFile(file)
	second, err2 := os.ReadFile(other)
	if err := errors.Join(err1, err2, os.WriteFile(file, append(first, second...), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// keysOfTheLog returns the content of the ConfigMap that has them.
func keysOfTheLog(t *testing.T, p *planetest.Plane) map[string]string {
	t.Helper()
	m, err := client(t, p).CoreV1().ConfigMaps(replicas.Namespace).Get(t.Context(), replicas.KeysMap, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m.Data
}

func TestAReplicaWithAnotherSigningKeyIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &several{t: t}
		a := s.start(plane.Config{})
		time.Sleep(17 * time.Second) // no lease is due at this moment
		synctest.Wait()
		before := keysOfTheLog(t, a)
		revision := a.Committer.Tip().Revision()
		other := newKeys(t)
		_, err := s.open(planetest.Options{KeyFile: other})
		var wrong *replicas.WrongKeysError
		if !errors.As(err, &wrong) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "--pki-dir") {
			t.Fatalf("error %v", err)
		}
		if a.Committer.Tip().Revision() != revision {
			t.Fatal("a replica that was refused has written")
		}
		// A key is rotated one replica after the other: the new one has the old key, too.
		appendKeys(t, other, s.keys)
		b, err := s.open(planetest.Options{KeyFile: other})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if now := keysOfTheLog(t, b); now["service-account-keys"] == before["service-account-keys"] {
			t.Fatalf("the keys of the log are %q still", now)
		}
		if err := a.Replicas.Health(); err == nil || !strings.Contains(err.Error(), "by other keys") {
			t.Fatalf("health is %v although replicas have other keys", err)
		}
		// When the former replicas are gone, their key is forgotten.
		a.Stop()
		file := newKeys(t)
		appendKeys(t, file, other)
		b.Stop()
		c, err := s.open(planetest.Options{KeyFile: file})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := c.Replicas.Health(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAnOperatorReplacesTheKeysOfALog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &several{t: t}
		a := s.start(plane.Config{})
		time.Sleep(15 * time.Second)
		a.Stop()
		other := newKeys(t)
		if _, err := s.open(planetest.Options{KeyFile: other}); err == nil {
			t.Fatal("a replica with another key was not refused")
		}
		config := plane.Config{Replicas: plane.Replicas{ReplaceKeys: true}}
		b, err := s.open(planetest.Options{Config: config, KeyFile: other})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		b.Stop()
		if _, err := s.open(planetest.Options{KeyFile: s.keys}); err == nil {
			t.Fatal("a replica with the former key was not refused")
		}
		if _, err := s.open(planetest.Options{KeyFile: other}); err != nil {
			t.Fatal(err)
		}
	})
}

// TestReplicasOfOneAuthority runs planes with listeners, in real time.
func TestReplicasOfOneAuthority(t *testing.T) {
	store, keys := new(memlog.Store), newKeys(t)
	open := func(dir string) (*planetest.Plane, error) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p, err := planetest.Open(t.Context(), planetest.Options{
			Config:  plane.Config{Listener: listener, PKIDir: dir, Controllers: controllers.All, Replicas: plane.Replicas{Every: time.Second}},
			Backend: store.Open(nil), KeyFile: keys,
		})
		if err == nil {
			t.Cleanup(p.Stop)
		}
		return p, err
	}
	shared := filepath.Join(t.TempDir(), "pki")
	a, err := open(shared)
	if err != nil {
		t.Fatal(err)
	}
	a.Bootstrap(t, shop)
	eventually(t, "it did not happen", func() bool { return a.Replicas.Leading() && a.Replicas.Health() == nil })
	eventually(t, "it did not happen", func() bool {
		m, err := client(t, a).CoreV1().ConfigMaps(replicas.Namespace).Get(t.Context(), replicas.KeysMap, metav1.GetOptions{})
		return err == nil && m.Data["authority"] != ""
	})
	eventually(t, "the replica does not tell its address", func() bool {
		leases, err := client(t, a).CoordinationV1().Leases(replicas.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: replicas.IdentityLabel})
		return err == nil && len(leases.Items) == 1
	})
	_, err = open(filepath.Join(t.TempDir(), "pki"))
	if !errors.As(err, new(*replicas.WrongKeysError)) || !strings.Contains(err.Error(), a.Address()) {
		t.Fatalf("error %v", err)
	}
	b, err := open(shared)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "pki")
	if err := os.CopyFS(other, os.DirFS(shared)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "audit.key"), []byte(strings.Repeat("ab", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	third, err := open(other)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "replicas do not tell that their audit.key differs", func() bool {
		err := a.Replicas.Health()
		return err != nil && strings.Contains(err.Error(), third.Address()+") makes other hashes of secrets") && !strings.Contains(err.Error(), b.Address())
	})
	third.Stop()
	// The token of a Secret has the authority of all replicas, and is not written again and again.
	c := client(t, b)
	if _, err := c.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}}, Type: corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var filled *corev1.Secret
	eventually(t, "it did not happen", func() bool {
		filled, err = c.CoreV1().Secrets("default").Get(t.Context(), "token", metav1.GetOptions{})
		return err == nil && len(filled.Data[corev1.ServiceAccountRootCAKey]) > 0
	})
	ca, err := os.ReadFile(filepath.Join(shared, "ca.crt"))
	if err != nil || string(ca) != string(filled.Data[corev1.ServiceAccountRootCAKey]) {
		t.Fatalf("the token's authority is not that of the replicas: %v", err)
	}
	for _, p := range []*planetest.Plane{a, b} {
		if _, err := os.Stat(filepath.Join(p.Dir, "pki", "server.crt")); err != nil {
			t.Fatal(err)
		}
	}
	a.Stop()
	eventually(t, "nobody leads", b.Replicas.Leading)
	now, err := c.CoreV1().Secrets("default").Get(t.Context(), "token", metav1.GetOptions{})
	if err != nil || now.ResourceVersion != filled.ResourceVersion {
		t.Fatalf("the secret was written again: %v", err)
	}
}

func TestTheFormatLevelIsThatOfTheOldestReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &several{t: t}
		older, err := s.open(planetest.Options{Reads: 1})
		if err != nil {
			t.Fatal(err)
		}
		keys := plane.Encryption{File: encrypting(t, "secrets")} // what needs the higher level
		held := plane.Config{Replicas: plane.Replicas{Level: 1}, Encryption: keys}
		newer, err := s.open(planetest.Options{Config: held})
		if err != nil {
			t.Fatal(err)
		}
		write := func(p *planetest.Plane, name string) {
			t.Helper()
			if _, err := client(t, p).CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Minute)
		write(older, "a")
		write(newer, "b")
		if older.Log.Level() != 1 || newer.Log.Level() != 1 {
			t.Fatalf("levels %d and %d although an old replica lives", older.Log.Level(), newer.Log.Level())
		}
		// The old one leaves. The operator holds the level.
		older.Stop()
		time.Sleep(5 * time.Minute)
		if newer.Log.Level() != 1 {
			t.Fatalf("level %d although it is held", newer.Log.Level())
		}
		newer.Stop()
		if newer, err = s.open(planetest.Options{Config: plane.Config{Encryption: keys}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		write(newer, "c")
		if newer.Log.Level() != 2 {
			t.Fatalf("level %d, want 2", newer.Log.Level())
		}
		batches := s.store.Batches()
		var formats []uint32
		for _, stored := range batches {
			b, err := eventlog.DecodeBatch(stored.First, stored.Value)
			if err != nil {
				t.Fatal(err)
			}
			formats = append(formats, b.Format)
		}
		if formats[0] != 1 || formats[len(formats)-1] != 2 {
			t.Fatalf("formats %v", formats)
		}
		// The old one comes back.
		_, err = s.open(planetest.Options{Reads: 1})
		if !errors.As(err, new(*eventlog.UnsupportedError)) || !strings.Contains(err.Error(), "format level 2, which this version does not know; use a newer one") {
			t.Fatalf("error %v", err)
		}
	})
}

func TestAReplicaThatRunsWhileTheLevelIsRaisedStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &several{t: t}
		var cut cutOff
		store := new(memlog.Store)
		older, err := s.open(planetest.Options{Backend: store.Open(cut.schedule), Reads: 1})
		if err != nil {
			t.Fatal(err)
		}
		s.store = store
		newer, err := s.open(planetest.Options{Config: plane.Config{Encryption: plane.Encryption{File: encrypting(t, "secrets")}}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		cut.Store(true) // so that it seems dead
		time.Sleep(5 * time.Minute)
		if newer.Log.Level() != 2 {
			t.Fatalf("level %d, want 2", newer.Log.Level())
		}
		revision := newer.Committer.Tip().Revision()
		cut.Store(false)
		time.Sleep(time.Minute)
		older.Stop()
		if !errors.As(older.Err, new(*eventlog.UnsupportedError)) {
			t.Fatalf("it ended with %v", older.Err)
		}
		for _, stored := range store.Batches() {
			if b, err := eventlog.DecodeBatch(stored.First, stored.Value); err == nil && b.First > revision && b.Format < 2 {
				t.Fatalf("revision %d was written at level %d", b.First, b.Format)
			}
		}
	})
}
