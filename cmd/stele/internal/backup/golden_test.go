package backup_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"
	command "stele.dev/stele/cmd/stele/internal/backup"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/keep/checkpoints"
	"stele.dev/stele/core/keep/logapi"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/backup"
	"stele.dev/stele/eventlog/backup/stores"
	"stele.dev/stele/eventlog/etcdlog"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/projections/checkpoint"
)

// The folder testdata/golden-1 has backups in format 1, in each form that a backup can have, and beside each what was in
// the server from which it was made. Every later version must restore them to that. The flag writes them anew; another
// format needs a folder of its own, and the former one stays.
//
//	go test ./cmd/stele/internal/backup -run TestGoldenBackups -rewrite-golden-backups
var rewriteGolden = flag.Bool("rewrite-golden-backups", false, "write testdata/golden-1 anew; a released format must never need it")

var golden = filepath.Join("testdata", "golden-1")

// identityFile has the age identity of goldenRecipient, by which one of the backups is encrypted.
const (
	identityFile    = "identity"
	identityText    = "AGE-SECRET-KEY-1TETC6QZAGPYNX2HCW9GN56NWCGVF0940TUCWRUJ67XRZ36YNT5WQNMM795\n"
	goldenRecipient = "age10tmr7slv3lxlwxm57mwstrhaqk7dcnylv904cpcl8gr8kqzfa3psw0a472"
)

// goldenBackup is a backup, and what a server shows that is restored from it.
type goldenBackup struct {
	Place    string   `json:"place"` // below the folder
	Backup   string   `json:"backup"`
	Log      string   `json:"log"`
	Revision uint64   `json:"revision"`
	Next     uint64   `json:"next"` // the first revision after a restore
	Keys     []string `json:"keys,omitempty"`
	// To are revisions to which the log can be restored, besides the end.
	To []uint64 `json:"to"`
	// Past is what is answered at revisions.
	Past []goldenMoment `json:"past"`
}

// goldenMoment is what is answered at a revision, by path: the objects, or the code of the refusal.
type goldenMoment struct {
	Revision uint64                     `json:"revision"`
	Answers  map[string]json.RawMessage `json:"answers"`
}

const goldenBundle = `package golden
import "stele.dev/policy"
bundle: policy.#Bundle & {
	cluster: "golden"
	teams: storage: {
		contact: "#storage", groups: ["storage.example"], namespaces: ["*"]
		kinds: "databases.storage.example": {
			group: "storage.example"
			names: {kind: "Database", plural: "databases"}
			storageVersion: "v1"
			versions: v1: #schema: spec!: {
				size!:  int & >=1 & <=9
				engine: *"postgres" | "mysql"
			}
		}
	}
}
`

// forgetful is a policy that keeps nothing of the past of leases.
const forgetful = goldenBundle + `bundle: history: retention: kinds: "leases.coordination.k8s.io": {history: "none", records: "0h"}
`

// goldenPaths are the lists that are compared.
var goldenPaths = []string{"/api/v1/configmaps", "/api/v1/secrets", "/api/v1/namespaces", "/apis/coordination.k8s.io/v1/leases", "/apis/storage.example/v1/databases"}

// ask sends a request of an administrator.
func ask(t *testing.T, p *planetest.Plane, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	q := httptest.NewRequest(method, path, strings.NewReader(body))
	q.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		q.Header.Set("Content-Type", "application/merge-patch+json")
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, q.WithContext(authn.WithUser(t.Context(), &user.DefaultInfo{Name: "keeper", Groups: []string{"system:masters"}})))
	return w
}

// moment returns what a plane answers at a revision.
func moment(t *testing.T, p *planetest.Plane, revision uint64) goldenMoment {
	t.Helper()
	m := goldenMoment{Revision: revision, Answers: map[string]json.RawMessage{}}
	for _, path := range goldenPaths {
		w := ask(t, p, http.MethodGet, fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact", path, revision), "")
		m.Answers[path] = json.RawMessage(fmt.Sprint(w.Code))
		if w.Code == http.StatusOK {
			m.Answers[path] = items(t, w.Body.Bytes())
		}
	}
	return m
}

// items returns the items of a list.
func items(t *testing.T, list []byte) json.RawMessage {
	t.Helper()
	var l struct {
		Items json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(list, &l); err != nil {
		t.Fatal(err)
	}
	return l.Items
}

func decoded(t *testing.T, text []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

func TestGoldenBackups(t *testing.T) {
	if *rewriteGolden {
		writeGolden(t)
	}
	descriptions, err := filepath.Glob(filepath.Join(golden, "*.json"))
	if err != nil || len(descriptions) == 0 {
		t.Fatal(descriptions, err)
	}
	for _, file := range descriptions {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var want goldenBackup
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		for _, to := range append([]uint64{0}, want.To...) {
			t.Run(fmt.Sprintf("%s to %d", strings.TrimSuffix(filepath.Base(file), ".json"), to), func(t *testing.T) { checkGolden(t, want, to) })
		}
	}
}

// checkGolden restores a backup to a revision, or to its end, and compares what a server then shows.
func checkGolden(t *testing.T, want goldenBackup, to uint64) {
	dir := filepath.Join(t.TempDir(), "restored")
	args := []string{"restore", filepath.Join(golden, want.Place), "--backup", want.Backup, "--data-dir", dir, "--identity", filepath.Join(golden, identityFile), "-o", "json"}
	end := want.Revision
	if to > 0 {
		end, args = to, append(args, "--to", fmt.Sprint(to))
	} else {
		verifyGolden(t, want)
	}
	// The log of the one has no beginning, and no record of the checkpoint; that of the other no record of what was erased.
	if want.Place == "forgotten" || want.Place == "segments.tar" {
		args = append(args, "--accept-unrecorded-checkpoint")
	}
	var restored struct {
		Log, Backup    string
		Revision, Next uint64
		Keys           bool
	}
	if err := json.Unmarshal(run(t, args...), &restored); err != nil {
		t.Fatal(err)
	}
	if restored.Log != want.Log || restored.Backup != want.Backup || restored.Revision != end || restored.Next != want.Next || restored.Keys != (len(want.Keys) > 0) {
		t.Errorf("restored %+v, want %+v", restored, want)
	}
	for _, key := range want.Keys {
		if text, err := os.ReadFile(filepath.Join(dir, key)); err != nil || string(text) != goldenKey(key) {
			t.Errorf("the key %s is %q, %v", key, text, err)
		}
	}
	backend, err := etcdlog.Embed(t.Context(), etcdlog.EmbedOptions{Dir: filepath.Join(dir, "etcd"), Used: true})
	if err != nil {
		t.Fatal(err)
	}
	p := planetest.Start(t, planetest.Options{Dir: dir, Backend: backend, Config: plane.Config{Segments: plane.Segments{Revisions: goldenSegment}}})
	if err := p.History.Reach(t.Context(), p.Committer.Tip().Revision()); err != nil {
		t.Fatal(err)
	}
	newest := want.Past[0]
	for _, past := range want.Past {
		if past.Revision <= end {
			newest = past
			compare(t, fmt.Sprint("at ", past.Revision), past, moment(t, p, past.Revision))
		}
	}
	if newest.Revision != end {
		t.Fatalf("there is no moment of revision %d", end)
	}
	for _, path := range goldenPaths { // what is shown now is what was shown last
		now := ask(t, p, http.MethodGet, path, "")
		last := newest.Answers[path]
		if strings.HasPrefix(string(last), "4") { // retention had erased the version of the moment
			continue
		}
		if diff := cmp.Diff(decoded(t, last), decoded(t, items(t, now.Body.Bytes()))); diff != "" {
			t.Errorf("%s now (-want +got):\n%s", path, diff)
		}
	}
	// The log goes on in the new epoch.
	w := ask(t, p, http.MethodPost, "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"after"}}`)
	var after struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &after); err != nil || w.Code != http.StatusCreated || len(after.Metadata.ResourceVersion) != len(fmt.Sprint(want.Next)) {
		t.Errorf("a write after the restore: %d %s", w.Code, w.Body)
	}
}

// verifyGolden verifies a golden backup. The version that made those in segments recorded no checkpoints in the log.
func verifyGolden(t *testing.T, want goldenBackup) {
	t.Helper()
	code := 0
	if strings.HasPrefix(want.Place, "segments") || want.Place == "forgotten" {
		code = usage.ExitIncomparable
	}
	said, err := try(t, "verify", filepath.Join(golden, want.Place), "--backup", want.Backup, "--identity", filepath.Join(golden, identityFile))
	if usage.ExitCode(err) != code || !strings.Contains(said, "is whole") || strings.Contains(said, "the log has no record of it; a restore leaves it out") != (code > 0) {
		t.Errorf("stele backup verify: %v: %s", err, said)
	}
}

func compare(t *testing.T, what string, want, got goldenMoment) {
	t.Helper()
	for path, objects := range want.Answers {
		if diff := cmp.Diff(decoded(t, objects), decoded(t, got.Answers[path])); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", path, what, diff)
		}
	}
}

// run runs a command of stele backup and returns its output.
func run(t *testing.T, args ...string) []byte {
	t.Helper()
	said, err := try(t, args...)
	if err != nil {
		t.Fatalf("stele backup %s: %v", strings.Join(args, " "), err)
	}
	return []byte(said)
}

func try(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := command.Command(nil, nil)
	cmd.SetArgs(args)
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	err := cmd.ExecuteContext(t.Context())
	return stdout.String(), err
}

// goldenSegment is how many revisions a segment of the golden backups has.
const goldenSegment = 8

func goldenKey(name string) string { return "the golden " + name + "\n" }

// writeGolden writes the golden backups, from two servers: one whose log is in batches only, and one whose log is in
// segments, of which retention has erased a part.
func writeGolden(t *testing.T) {
	if err := os.RemoveAll(golden); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(golden, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(golden, identityFile), []byte(identityText), 0o644); err != nil {
		t.Fatal(err)
	}
	g := newGoldenServer(t, plane.Config{})
	g.write(12)
	first := g.backup("batches", nil)
	g.write(12)
	second := g.backup("batches", nil) // it shares files with the one before
	first.Next = second.Next           // above all revisions that the place knows
	first.store(t, "batches-1")
	second.store(t, "batches-2")

	g = newGoldenServer(t, plane.Config{
		Segments:    plane.Segments{Revisions: goldenSegment, Window: time.Nanosecond, Trim: true},
		Checkpoints: checkpoints.Options{Events: 10},
		Retention:   plane.Retention{Every: 50 * time.Millisecond},
	})
	g.Activate(t, forgetful)
	g.write(30)
	g.erase()
	g.Activate(t, goldenBundle) // what is there from now on stays
	g.kept = g.Committer.Tip().Revision()
	g.write(12)
	g.seal()
	g.backup("segments.tar", func(o *backup.CreateOptions) {
		recipients, err := backup.ParseRecipients(strings.NewReader(goldenRecipient))
		if err != nil {
			t.Fatal(err)
		}
		o.Recipients = recipients
		for _, name := range []string{"pki/ca.crt", "pki/ca.key", "pki/sa.key"} {
			o.Keys = append(o.Keys, backup.KeyFile{Name: name, Content: []byte(goldenKey(name))})
		}
	}).store(t, "segments")
	all := g.Archive.Segments()
	if err := g.Archive.Drop(t.Context(), all[len(all)/2].Last); err != nil {
		t.Fatal(err)
	}
	g.backup("forgotten", nil).store(t, "forgotten")
}

// goldenServer is a server whose backups become golden.
type goldenServer struct {
	*planetest.Plane
	t       *testing.T
	n       int
	moments []uint64
	kept    uint64 // retention erases nothing behind this revision
}

func newGoldenServer(t *testing.T, c plane.Config) *goldenServer {
	c.WatchBytes = 1 // what was erased is not answered from memory
	g := &goldenServer{t: t, Plane: planetest.Start(t, planetest.Options{Config: c, Bundle: goldenBundle, Backend: new(memlog.Store).Open(nil)})}
	g.send(http.MethodPost, "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"kept","labels":{"a":"b"}},"data":{"n":"first"}}`)
	g.send(http.MethodPost, "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"secret"},"data":{"password":"c3RlbGU="}}`)
	g.send(http.MethodPost, "/apis/storage.example/v1/namespaces/default/databases", `{"apiVersion":"storage.example/v1","kind":"Database","metadata":{"name":"orders"},"spec":{"size":1}}`)
	g.send(http.MethodPost, "/apis/coordination.k8s.io/v1/namespaces/default/leases", `{"metadata":{"name":"pulse"},"spec":{"holderIdentity":"0"}}`)
	return g
}

func (g *goldenServer) send(method, path, body string) {
	g.t.Helper()
	if w := ask(g.t, g.Plane, method, path, body); w.Code >= 300 {
		g.t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
}

// write changes, deletes and creates objects, and notes moments on the way.
func (g *goldenServer) write(times int) {
	g.t.Helper()
	for range times {
		g.n++
		g.send(http.MethodPatch, "/apis/coordination.k8s.io/v1/namespaces/default/leases/pulse", fmt.Sprintf(`{"metadata":{"name":"pulse"},"spec":{"holderIdentity":"%d"}}`, g.n))
		switch g.n % 4 {
		case 0:
			g.send(http.MethodPost, "/api/v1/namespaces/default/configmaps", fmt.Sprintf(`{"metadata":{"name":"c-%d"},"data":{"n":"%d"}}`, g.n, g.n))
		case 1:
			g.send(http.MethodPatch, "/api/v1/namespaces/default/configmaps/kept", fmt.Sprintf(`{"metadata":{"name":"kept"},"data":{"n":"%d"}}`, g.n))
		case 2:
			g.send(http.MethodPatch, "/apis/storage.example/v1/namespaces/default/databases/orders", fmt.Sprintf(`{"apiVersion":"storage.example/v1","kind":"Database","metadata":{"name":"orders"},"spec":{"size":%d,"engine":"mysql"}}`, 1+g.n%9))
		case 3:
			if g.n > 4 {
				g.send(http.MethodDelete, fmt.Sprintf("/api/v1/namespaces/default/configmaps/c-%d", g.n/4*4), "")
			}
		}
		if g.n%5 == 0 {
			g.moments = append(g.moments, g.Committer.Tip().Revision())
		}
	}
}

// erase writes until retention has erased a part of the log. It erases nothing behind the older of two checkpoints.
func (g *goldenServer) erase() {
	g.t.Helper()
	for range 100 {
		for i, s := range g.Archive.Segments() {
			if i > 2 && s.Generation > 0 {
				return
			}
		}
		g.write(1)
		time.Sleep(200 * time.Millisecond)
	}
	g.t.Fatal("nothing was erased")
}

// seal waits until what fills segments is in segments.
func (g *goldenServer) seal() {
	g.t.Helper()
	for range 100 {
		if g.Archive.Tip().Revision+2*goldenSegment > g.Committer.Tip().Revision() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	g.t.Fatal("nothing was sealed")
}

// backup makes a backup, and returns it with what the server shows.
func (g *goldenServer) backup(place string, change func(*backup.CreateOptions)) *goldenBackup {
	g.t.Helper()
	folder, err := checkpoint.Open(filepath.Join(g.Dir, "checkpoints"), nil, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	revisions, err := folder.Revisions()
	if err != nil {
		g.t.Fatal(err)
	}
	for _, revision := range revisions {
		if _, err := folder.Verify(g.t.Context(), revision, 0, nil); err != nil {
			g.t.Fatal(err)
		}
	}
	source := logapi.FileOptions{Log: g.Log, Archive: g.Archive, Checkpoints: folder, Retention: filepath.Join(g.Dir, "retention")}.Source()
	o := backup.CreateOptions{Source: source, By: "stele golden", BatchesBytes: 8 << 10}
	if change != nil {
		change(&o)
	}
	m := g.create(place, o)
	if !slices.Contains(g.moments, m.Head.Revision) {
		g.moments = append(g.moments, m.Head.Revision)
	}
	b := &goldenBackup{Place: place, Backup: m.Name(), Log: m.Log, Revision: m.Head.Revision, Next: m.Head.Revision + 1 + backup.DefaultGap}
	for _, revision := range g.moments {
		if revision > g.since(m) && revision < m.Head.Revision {
			b.To = append(b.To, revision)
		}
	}
	if n := len(b.To); n > 2 {
		b.To = []uint64{b.To[0], b.To[n-1]}
	}
	for _, k := range m.Keys {
		b.Keys = append(b.Keys, k.Name)
	}
	if err := g.History.Reach(g.t.Context(), m.Head.Revision); err != nil {
		g.t.Fatal(err)
	}
	for _, revision := range g.moments {
		if m.Oldest().Revision > 0 && revision < g.since(m) { // the server still has in its index what the log has forgotten
			continue
		}
		b.Past = append(b.Past, moment(g.t, g.Plane, revision))
	}
	return b
}

// store writes the description of a backup.
func (b *goldenBackup) store(t *testing.T, name string) {
	t.Helper()
	text, err := json.MarshalIndent(b, "", " ")
	if err == nil {
		err = os.WriteFile(filepath.Join(golden, name+".json"), append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// since returns the revision behind which a restore can end anywhere: nothing is erased there, and the objects up to it
// need not be made of what is forgotten.
func (g *goldenServer) since(m *backup.Manifest) (revision uint64) {
	revision = g.kept
	for _, s := range g.Archive.Segments() {
		if s.Generation > 0 {
			revision = max(revision, s.Last)
		}
	}
	if m.Oldest().Revision > 0 {
		revision = max(revision, m.Checkpoints[0].Revision)
	}
	return revision
}

// create makes the backup in a folder, or in a single file.
func (g *goldenServer) create(place string, o backup.CreateOptions) *backup.Manifest {
	g.t.Helper()
	name := filepath.Join(golden, place)
	if o.Store = stores.NewFolder(name); !strings.HasSuffix(place, ".tar") {
		m, err := backup.Create(context.Background(), o)
		if err != nil {
			g.t.Fatal(err)
		}
		return m
	}
	file, err := stores.CreateSingleFile(name)
	if err != nil {
		g.t.Fatal(err)
	}
	defer file.Close()
	o.Store = file
	m, err := backup.Create(context.Background(), o)
	if err == nil {
		err = file.Commit()
	}
	if err != nil {
		g.t.Fatal(err)
	}
	return m
}
