package proofs

import (
	"errors"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/verify"
	"stele.dev/stele/projections/checkpoint"
)

const bundle = `
package test
import "stele.dev/policy"
bundle: policy.#Bundle & {cluster: "test"}
`

// site is a control plane, and a folder for checkpoints of it.
type site struct {
	*testing.T
	server *planetest.Plane
	folder *checkpoint.Folder
	path   string
}

func newSite(t *testing.T) *site {
	p := &site{T: t, server: planetest.Start(t, planetest.Options{Bundle: bundle}), path: t.TempDir()}
	var err error
	if p.folder, err = checkpoint.Open(p.path, nil, nil); err != nil {
		t.Fatal(err)
	}
	return p
}

// create creates a ConfigMap and returns the state after it.
func (p *site) create(name string) *commit.Tip {
	p.Helper()
	client, err := kubernetes.NewForConfig(p.server.Client("admin", "system:masters"))
	if err != nil {
		p.Fatal(err)
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	if _, err := client.CoreV1().ConfigMaps("default").Create(p.Context(), object, metav1.CreateOptions{}); err != nil {
		p.Fatal(err)
	}
	return p.server.Committer.Tip()
}

// write writes a checkpoint of a state, as that of a revision.
func (p *site) write(revision uint64, of *commit.Tip) {
	p.Helper()
	if _, err := p.folder.Write(p.Context(), revision, 0, of.Save); err != nil {
		p.Fatal(err)
	}
}

func (p *site) verify(quick bool) (*verified, error) {
	v := &verified{}
	c := &checkpoints{log: p.server.Log, tip: p.server.Committer.Tip().Revision(), quick: quick}
	return v, c.verify(p.Context(), p.path, v)
}

func TestCheckpointsHoldWhatTheLogMakes(t *testing.T) {
	p := newSite(t)
	for _, name := range []string{"one", "two"} {
		tip := p.create(name)
		p.write(tip.Revision(), tip)
	}
	v, err := p.verify(false)
	if err != nil || v.Checkpoints != 2 || v.Compared != 2 || v.NotCompared != "" {
		t.Errorf("%+v, %v", v, err)
	}
	v, err = p.verify(true)
	if err != nil || v.Checkpoints != 2 || v.Compared != 0 || v.NotCompared == "" {
		t.Errorf("quick: %+v, %v", v, err)
	}
}

// What retention has erased is not there to be compared. A checkpoint from before is compared with what the log has recorded of it.
func TestACheckpointBeforeWhatIsErased(t *testing.T) {
	for _, recorded := range []bool{true, false} {
		p := newSite(t)
		older := p.create("one")
		p.write(older.Revision(), older)
		if recorded {
			if _, err := p.server.Committer.RecordCheckpoint(t.Context(), older.Revision(), p.folder.Good()[0].Info.Fold); err != nil {
				t.Fatal(err)
			}
		}
		newer := p.create("two")
		p.write(newer.Revision(), newer)
		c := &checkpoints{log: p.server.Log, tip: p.server.Committer.Tip().Revision(), erased: map[schema.GroupResource]uint64{{Resource: "configmaps"}: newer.Revision()}}
		v := &verified{}
		if err := c.verify(t.Context(), p.path, v); err != nil || v.Checkpoints != 2 || v.Compared == 2 != recorded || strings.Contains(v.NotCompared, "configmaps are erased up to revision") == recorded {
			t.Errorf("recorded %v: %+v, %v", recorded, v, err)
		}
	}
}

func TestACheckpointThatIsWrongIsNamed(t *testing.T) {
	for _, tc := range []struct {
		name string
		make func(*site)
		what string
	}{
		{"of another state", func(p *site) {
			before := p.create("one")
			p.write(p.create("two").Revision(), before)
		}, "it does not hold what the log makes of the objects"},
		{"ahead of the log", func(p *site) {
			tip := p.create("one")
			p.write(tip.Revision()+1, tip)
		}, "it is ahead of the log"},
		{"damaged", func(p *site) {
			tip := p.create("one")
			p.write(tip.Revision(), tip)
			file := p.folder.Path(tip.Revision())
			content, err := os.ReadFile(file)
			if err != nil {
				p.Fatal(err)
			}
			content[len(content)/2] ^= 1
			if err := os.WriteFile(file, content, 0o600); err != nil {
				p.Fatal(err)
			}
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newSite(t)
			tc.make(p)
			_, err := p.verify(false)
			var d *verify.Difference
			if !errors.As(err, &d) || !strings.HasSuffix(d.Where, ".ckpt") || !strings.Contains(d.What, tc.what) {
				t.Errorf("%v", err)
			}
		})
	}
}
