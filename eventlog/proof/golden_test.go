package proof_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"stele.dev/stele/eventlog/proof"
)

var update = flag.Bool("update", false, "write testdata/v1 anew; only for a new format, because every version must verify the old files")

// TestGolden verifies heads and proofs that were written by the first version that had them.
func TestGolden(t *testing.T) {
	dir := filepath.Join("testdata", "v1")
	if *update {
		writeGolden(t, dir)
	}
	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	key, err := note.NewVerifier(strings.TrimSpace(string(read("key.pub"))))
	if err != nil {
		t.Fatal(err)
	}
	older, err := proof.OpenHead(read("older.txt"), key)
	if err != nil {
		t.Fatal(err)
	}
	head, err := proof.OpenHead(read("head.txt"), key)
	if err != nil {
		t.Fatal(err)
	}
	for name, contents := range map[string]bool{"event.json": false, "contents.json": true, "spans.json": true} {
		p, err := proof.DecodeInclusion(read(name))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		proven, err := p.Verify(head)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(proven.Contents) == 0 || (proven.Contents[0] != nil) != contents || (len(p.Before) > 0) != (name == "spans.json") {
			t.Errorf("%s: proven %+v", name, proven)
		}
	}
	c, err := proof.DecodeConsistency(read("continued.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Verify(older, head); err != nil {
		t.Error(err)
	}
}

func writeGolden(t *testing.T, dir string) {
	log, events := randomLog(t, 30, 100)
	tree := proof.NewTree(proof.NewSource(log, nil), log.ID())
	secret, public, err := proof.GenerateKey(neverRandom{}, log.ID())
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write("key.pub", []byte(public+"\n"))
	for name, size := range map[string]uint64{"older.txt": 37, "head.txt": 100} {
		signed, err := headOf(t, tree, size).Sign(signer)
		if err != nil {
			t.Fatal(err)
		}
		write(name, signed)
	}
	c, err := tree.Consistency(t.Context(), 37, 100)
	if err != nil {
		t.Fatal(err)
	}
	write("continued.json", c.Encode())
	for name, fits := range map[string]func(*proof.Inclusion) bool{
		"event.json":    func(p *proof.Inclusion) bool { return len(p.Before) == 0 },
		"contents.json": func(p *proof.Inclusion) bool { return len(p.Before) == 0 },
		"spans.json":    func(p *proof.Inclusion) bool { return len(p.Before) == 2 },
	} {
		for _, e := range events {
			p, err := tree.Inclusion(t.Context(), e.Revision, 100, name != "event.json")
			if err != nil {
				t.Fatal(err)
			}
			if fits(p) && len(e.Contents) > 0 {
				write(name, p.Encode())
				break
			}
		}
	}
}

// neverRandom makes the same key each time.
type neverRandom struct{}

func (neverRandom) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
