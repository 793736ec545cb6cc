package proof

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"stele.dev/stele/eventlog"
)

// originPrefix is what origins begin with; the id of the log follows.
const originPrefix = "stele.dev/log/"

// maxHead is the maximum size of a signed head in bytes. It leaves room for the signatures of many witnesses.
const maxHead = 1 << 20

// Origin returns the line that names a log in its heads. It is also the name of the log's key.
func Origin(log eventlog.ID) string { return originPrefix + log.String() }

// TreeHead is the state of the tree over the first Size batches of a log.
type TreeHead struct {
	Log  eventlog.ID
	Size uint64 // number of batches, at least 1
	Root eventlog.Hash
	// Revision is the last revision of the newest batch, and Batch that batch's hash. A head that was not
	// made by this program may lack both: they are then zero.
	Revision uint64
	Batch    eventlog.Hash
}

// Text returns the checkpoint, without signatures.
func (h TreeHead) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%d\n%s\n", Origin(h.Log), h.Size, base64.StdEncoding.EncodeToString(h.Root[:]))
	if h.Revision > 0 {
		fmt.Fprintf(&b, "revision %d\nbatch %s\n", h.Revision, base64.StdEncoding.EncodeToString(h.Batch[:]))
	}
	return b.String()
}

// Sign returns the head as a note that is signed by a key of [GenerateKey].
func (h TreeHead) Sign(signer note.Signer) ([]byte, error) {
	return note.Sign(&note.Note{Text: h.Text()}, signer)
}

// GenerateKey makes a key pair for the heads of a log, in the encodings of package note. The signer's key is
// secret.
func GenerateKey(random io.Reader, log eventlog.ID) (signer, verifier string, err error) {
	return note.GenerateKey(random, Origin(log))
}

// ErrUnsigned reports a head that none of the given keys has signed.
var ErrUnsigned = errors.New("none of the given keys has signed this tree head")

// OpenHead reads a signed head. At least one of the keys MUST have signed it, and no signature of theirs may
// be wrong; signatures of other keys are ignored. Errors are [ErrUnsigned], or say what is malformed.
func OpenHead(signed []byte, keys ...note.Verifier) (TreeHead, error) {
	if len(signed) > maxHead {
		return TreeHead{}, fmt.Errorf("a tree head of %d bytes, at most %d are read", len(signed), maxHead)
	}
	n, err := note.Open(signed, note.VerifierList(keys...))
	var unverified *note.UnverifiedNoteError
	var invalid *note.InvalidSignatureError
	switch {
	case errors.As(err, &unverified):
		return TreeHead{}, fmt.Errorf("%w; its signatures are by %s", ErrUnsigned, signers(unverified.Note))
	case errors.As(err, &invalid):
		return TreeHead{}, fmt.Errorf("the signature of %s on this tree head is wrong: head or signature was changed", invalid.Name)
	case err != nil:
		return TreeHead{}, fmt.Errorf("not a signed tree head: %w", err)
	}
	for _, s := range n.Sigs {
		if _, err := base64.StdEncoding.Strict().DecodeString(s.Base64); err != nil {
			return TreeHead{}, fmt.Errorf("the signature of %s on this tree head is misspelled: %w", s.Name, err)
		}
	}
	return ParseHead(n.Text)
}

// signers lists the keys of a note's signatures.
func signers(n *note.Note) string {
	var names []string
	for _, s := range n.UnverifiedSigs {
		names = append(names, fmt.Sprintf("%s+%08x", s.Name, s.Hash))
	}
	return strings.Join(names, ", ")
}

// Body returns the checkpoint in a head, without its signatures. It checks none of them.
func Body(head string) string {
	if i := strings.LastIndex(head, "\n\n"); i >= 0 {
		return head[:i+1]
	}
	return head
}

// ParseHead parses a checkpoint without signatures. Extension lines that it does not know are ignored.
func ParseHead(text string) (h TreeHead, err error) {
	malformed := func(format string, args ...any) (TreeHead, error) {
		return TreeHead{}, fmt.Errorf("malformed tree head: "+format, args...)
	}
	body, ended := strings.CutSuffix(text, "\n")
	lines := strings.Split(body, "\n")
	if !ended || len(lines) < 3 {
		return malformed("it is not three lines or more")
	}
	id, known := strings.CutPrefix(lines[0], originPrefix)
	raw, err := hex.DecodeString(id)
	if !known || err != nil || len(raw) != len(h.Log) || id != strings.ToLower(id) {
		return malformed("its origin %q is not %s and the id of a log", lines[0], originPrefix)
	}
	h.Log = eventlog.ID(raw)
	if h.Size, err = decimal(lines[1]); err != nil || h.Size == 0 {
		return malformed("%q is not the size of a tree", lines[1])
	}
	if h.Root, err = parseHash(lines[2]); err != nil {
		return malformed("root: %v", err)
	}
	seen := map[string]bool{}
	for _, line := range lines[3:] {
		name, value, _ := strings.Cut(line, " ")
		if seen[name] && (name == "revision" || name == "batch") {
			return malformed("it has %s twice", name)
		}
		seen[name] = true
		switch name {
		case "":
			return malformed("a line is empty")
		case "revision":
			h.Revision, err = decimal(value)
		case "batch":
			h.Batch, err = parseHash(value)
		}
		if err != nil {
			return malformed("%s: %v", name, err)
		}
	}
	if (h.Revision == 0) != (h.Batch == eventlog.Hash{}) {
		return malformed("it has only one of revision and batch")
	}
	return h, nil
}

// decimal parses a number without sign or leading zeros.
func decimal(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err == nil && strconv.FormatUint(n, 10) != text {
		err = fmt.Errorf("%q is not the usual spelling of %d", text, n)
	}
	return n, err
}

// parseHash parses the base64 encoding of a hash.
func parseHash(text string) (eventlog.Hash, error) {
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if err == nil && (len(raw) != len(eventlog.Hash{}) || len(text) != base64.StdEncoding.EncodedLen(len(raw))) {
		err = fmt.Errorf("%q is not a SHA-256", text)
	}
	if err != nil {
		return eventlog.Hash{}, err
	}
	return eventlog.Hash(raw), nil
}
