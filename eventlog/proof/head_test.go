package proof_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/proof"
)

// head is a head with every field.
var head = proof.TreeHead{
	Log: eventlog.ID{1, 2, 3}, Size: 7, Root: eventlog.Hash{4, 5}, Revision: 19, Batch: eventlog.Hash{6},
}

func keys(t testing.TB, log eventlog.ID) (note.Signer, note.Verifier) {
	t.Helper()
	secret, public, err := proof.GenerateKey(rand.Reader, log)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := note.NewVerifier(public)
	if err != nil {
		t.Fatal(err)
	}
	return signer, verifier
}

func TestTheTextOfAHeadIsACheckpoint(t *testing.T) {
	want := `stele.dev/log/01020300000000000000000000000000
7
BAUAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
revision 19
batch BgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
`
	if got := head.Text(); got != want {
		t.Errorf("got\n%s", got)
	}
	if got, err := proof.ParseHead(want); err != nil || got != head {
		t.Errorf("parsed as %+v, %v", got, err)
	}
}

func TestHeadsOfOthersNeedNoExtensions(t *testing.T) {
	lines := strings.SplitAfter(head.Text(), "\n")
	got, err := proof.ParseHead(strings.Join(lines[:3], "") + "an extension\n")
	if err != nil || got.Size != 7 || got.Revision != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestMalformedHeads(t *testing.T) {
	lines := strings.SplitAfter(head.Text(), "\n")
	for name, text := range map[string]string{
		"empty":          "",
		"two lines":      strings.Join(lines[:2], ""),
		"unended":        strings.TrimSuffix(head.Text(), "\n"),
		"origin":         "example.com/log\n" + strings.Join(lines[1:], ""),
		"upper case":     strings.Replace(head.Text(), "010203", "01020A", 1),
		"no size":        lines[0] + "0\n" + lines[2],
		"zeros":          lines[0] + "07\n" + lines[2],
		"sign":           lines[0] + "+7\n" + lines[2],
		"short root":     lines[0] + lines[1] + "BAU=\n",
		"loose root":     lines[0] + lines[1] + strings.Replace(lines[2], "AAA=", "AAB=", 1),
		"empty line":     lines[0] + lines[1] + lines[2] + "\n",
		"only revision":  strings.Join(lines[:4], ""),
		"revision twice": head.Text() + lines[3],
	} {
		if got, err := proof.ParseHead(text); err == nil {
			t.Errorf("%s: parsed as %+v", name, got)
		}
	}
}

func TestSignedHeads(t *testing.T) {
	signer, verifier := keys(t, head.Log)
	_, stranger := keys(t, head.Log)
	signed, err := head.Sign(signer)
	if err != nil {
		t.Fatal(err)
	}
	if proof.Body(string(signed)) != head.Text() {
		t.Errorf("body %q", proof.Body(string(signed)))
	}
	if got, err := proof.OpenHead(signed, stranger, verifier); err != nil || got != head {
		t.Errorf("opened as %+v, %v", got, err)
	}
	if _, err := proof.OpenHead(signed, stranger); !errors.Is(err, proof.ErrUnsigned) {
		t.Errorf("with another key: %v", err)
	}
	if _, err := proof.OpenHead([]byte(head.Text()), verifier); err == nil {
		t.Error("a head without a signature was opened")
	}
	for i := range signed {
		changed := bytes.Clone(signed)
		changed[i] ^= 1
		if got, err := proof.OpenHead(changed, verifier); err == nil {
			t.Errorf("byte %d flipped: opened as %+v", i, got)
		}
	}
}
