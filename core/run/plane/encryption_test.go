package plane_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"stele.dev/stele/core/keep/checkpoints"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/eventlog/proof"
)

// encrypting writes an EncryptionConfiguration that encrypts resources, separated by commas, under keys, the first of which is for what is
// written. Without keys there is one, "first".
func encrypting(t *testing.T, resources string, keys ...string) string {
	t.Helper()
	if len(keys) == 0 {
		keys = []string{"first"}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [%s]\n  providers:\n", resources)
	for _, name := range keys {
		if name == "identity" {
			text.WriteString("  - identity: {}\n")
			continue
		}
		secret := base64.StdEncoding.EncodeToString([]byte(fmt.Sprintf("%-32s", name)))
		fmt.Fprintf(&text, "  - aesgcm: {keys: [{name: %s, secret: %s}]}\n", name, secret)
	}
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// planted is what no file may have in plain.
const planted = "planted-b2f7-secret"

func secret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"key": planted}}
}

// storedPlain returns the files below folders, and the batches of a store, in which a text is in plain or as Secrets encode it.
func storedPlain(t *testing.T, store *memlog.Store, text string, folders ...string) (found []string) {
	t.Helper()
	forms := [][]byte{[]byte(text), []byte(base64.StdEncoding.EncodeToString([]byte(text)))}
	look := func(name string, content []byte) {
		for _, form := range forms {
			if bytes.Contains(content, form) {
				found = append(found, name)
			}
		}
	}
	for _, stored := range store.Batches() {
		parts, err := eventlog.Split(stored.First, stored.Value)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range parts.Entries {
			look(fmt.Sprint("revision ", e.Revision), e.Metadata)
			for _, b := range e.Blobs {
				look(fmt.Sprint("revision ", e.Revision), b.Content)
			}
		}
	}
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			look(path, content)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func TestSecretsAreEncryptedWhereTheyAreStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &several{t: t}
		config := plane.Config{
			Encryption: plane.Encryption{File: encrypting(t, "secrets")}, Checkpoints: checkpoints.Options{Events: 1, Unrecorded: true}, Segments: plane.Segments{Revisions: 5},
		}
		dir := t.TempDir()
		p, err := s.open(planetest.Options{Config: config, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // the format level is raised
		c := client(t, p).CoreV1()
		for i := range 3 {
			if _, err := c.Secrets("default").Create(t.Context(), secret(fmt.Sprint("s", i)), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		changed := secret("s0")
		changed.Labels = map[string]string{"changed": "true"}
		if _, err := c.Secrets("default").Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		var proven proof.Inclusion
		before, err := c.Secrets("default").Get(t.Context(), "s1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		text, err := c.RESTClient().Get().AbsPath("/log/proof/contents").Param("revision", before.ResourceVersion).DoRaw(t.Context())
		if err == nil {
			err = json.Unmarshal(text, &proven)
		}
		if err != nil || !bytes.Contains(proven.Event.Payloads[0].Content, []byte(base64.StdEncoding.EncodeToString([]byte(planted)))) || len(proven.Event.Payloads[0].Salt) == 0 {
			t.Errorf("a proof with contents has no content of what is encrypted: %v, %v", proven.Event, err)
		}
		if err := c.Secrets("default").Delete(t.Context(), "s2", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		plain := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Data: map[string]string{"key": "in plain"}}
		if _, err := c.ConfigMaps("default").Create(t.Context(), plain, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // a checkpoint is made
		p.Stop()
		if made, err := filepath.Glob(filepath.Join(dir, "checkpoints", "*.ckpt")); err != nil || len(made) == 0 {
			t.Fatalf("there is no checkpoint: %v", err)
		}
		if found := storedPlain(t, s.store, planted, dir); len(found) > 0 {
			t.Errorf("a secret is in plain in %v", found)
		}
		if found := storedPlain(t, s.store, "in plain"); len(found) == 0 {
			t.Error("what is not encrypted is not found: this test finds nothing")
		}

		if made, err := filepath.Glob(filepath.Join(dir, "segments", "*.payloads")); err != nil || len(made) < 2 {
			t.Fatalf("there are %d segments: %v", len(made), err)
		}

		// The keys open it, from the checkpoint, from segments, and from the log.
		segments := t.TempDir()
		if err := os.CopyFS(filepath.Join(segments, "segments"), os.DirFS(filepath.Join(dir, "segments"))); err != nil {
			t.Fatal(err)
		}
		for _, from := range []string{dir, segments, t.TempDir()} {
			again, err := s.open(planetest.Options{Config: config, Dir: from})
			if err != nil {
				t.Fatal(err)
			}
			got, err := client(t, again).CoreV1().Secrets("default").Get(t.Context(), "s0", metav1.GetOptions{})
			if err != nil || string(got.Data["key"]) != planted || got.Labels["changed"] != "true" {
				t.Errorf("from %s: %v, %v", from, got, err)
			}
			again.Stop()
		}

		// Without them, or with others, nothing starts.
		for _, c := range []plane.Config{{}, {Encryption: plane.Encryption{File: encrypting(t, "secrets", "second")}}} {
			for _, from := range []string{dir, t.TempDir()} {
				_, err := s.open(planetest.Options{Config: c, Dir: from})
				if key := (*eventlog.KeyError)(nil); !errors.As(err, &key) || key.KeyID != "k8s:enc:aesgcm:v1:first" || !strings.Contains(err.Error(), "--encryption-provider-config") {
					t.Errorf("from %s: error %v", from, err)
				}
			}
		}

		// Another key for what is written, and the first one for what is there.
		config.Encryption.File = encrypting(t, "secrets", "second", "first")
		rotated, err := s.open(planetest.Options{Config: config})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := client(t, rotated).CoreV1().Secrets("default").Get(t.Context(), "s1", metav1.GetOptions{}); err != nil || string(got.Data["key"]) != planted {
			t.Errorf("after the rotation: %v, %v", got, err)
		}
		// A write that changes nothing encrypts it again, once.
		rewritten := client(t, rotated).CoreV1().Secrets("default")
		for _, name := range []string{"s0", "s1"} {
			for i := range 2 {
				was, err := rewritten.Get(t.Context(), name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				is, err := rewritten.Update(t.Context(), was, metav1.UpdateOptions{})
				if err != nil || (is.ResourceVersion != was.ResourceVersion) != (i == 0) || is.Generation != was.Generation {
					t.Errorf("%s, update %d: from revision %s to %s, %v", name, i, was.ResourceVersion, is.ResourceVersion, err)
				}
			}
		}
		other, err := client(t, rotated).CoreV1().ConfigMaps("default").Get(t.Context(), "plain", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if is, err := client(t, rotated).CoreV1().ConfigMaps("default").Update(t.Context(), other, metav1.UpdateOptions{}); err != nil || is.ResourceVersion != other.ResourceVersion {
			t.Errorf("what is not encrypted was written again: %v, %v", is, err)
		}
		rotated.Stop()
	})
}

// A log that was not encrypted is, when its objects are written again.
func TestEncryptionBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &several{t: t}
		p := s.start(plane.Config{})
		if _, err := client(t, p).CoreV1().Secrets("default").Create(t.Context(), secret("s"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		p.Stop()
		p = s.start(plane.Config{Encryption: plane.Encryption{File: encrypting(t, "secrets")}})
		time.Sleep(time.Minute) // the format level is raised
		secrets := client(t, p).CoreV1().Secrets("default")
		was, err := secrets.Get(t.Context(), "s", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		is, err := secrets.Update(t.Context(), was, metav1.UpdateOptions{})
		if err != nil || is.ResourceVersion == was.ResourceVersion {
			t.Errorf("%v, %v", is, err)
		}
		p.Stop()
		if found := storedPlain(t, s.store, planted); len(found) != 2 { // the first version, and what was sent
			t.Errorf("it is in plain in %v", found)
		}
	})
}

// The parts of policies are contents, too.
func TestEverythingIsEncrypted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &several{t: t}
		config := plane.Config{Encryption: plane.Encryption{File: encrypting(t, "'*.*'")}, Checkpoints: checkpoints.Options{Events: 1, Unrecorded: true}}
		dir := t.TempDir()
		p, err := s.open(planetest.Options{Config: config, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		p.Activate(t, strings.Replace(strings.Replace(shop, "#data", "#planted-in-a-policy", 1), `cluster: "shop"`, `cluster: "shop", dynamic: rbac: "Match"`, 1))
		patch := []byte(`{"metadata":{"annotations":{"planted":"` + planted + `"}}}`)
		if _, err := client(t, p).RbacV1().ClusterRoles().Patch(t.Context(), "view", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "planted"}, Data: map[string]string{"key": planted}}
		if _, err := client(t, p).CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		p.Stop()
		for _, text := range []string{planted, "#planted-in-a-policy"} {
			if found := storedPlain(t, s.store, text, dir); len(found) > 0 {
				t.Errorf("%q is in plain in %v", text, found)
			}
		}
		for _, from := range []string{dir, t.TempDir()} {
			again, err := s.open(planetest.Options{Config: config, Dir: from})
			if err != nil {
				t.Fatal(err)
			}
			got, err := client(t, again).CoreV1().ConfigMaps("default").Get(t.Context(), "planted", metav1.GetOptions{})
			if err != nil || got.Data["key"] != planted {
				t.Errorf("from %s: %v, %v", from, got, err)
			}
			again.Stop()
		}
	})
}
