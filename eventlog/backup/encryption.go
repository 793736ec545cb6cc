package backup

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"filippo.io/age"
	"stele.dev/stele/eventlog/backup/stores"
)

// Recipient is an age recipient and its text, which the manifest has.
type Recipient struct {
	age.Recipient
	Text string
}

// ParseRecipients parses age recipients, one a line, as in a file of recipients.
func ParseRecipients(r io.Reader) ([]Recipient, error) {
	var recipients []Recipient
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		parsed, err := age.ParseRecipients(strings.NewReader(text))
		if err != nil || len(parsed) != 1 {
			return nil, fmt.Errorf("line %d is not an age recipient, which begins with age1", n) // the line may be an identity
		}
		recipients = append(recipients, Recipient{parsed[0], text})
	}
	return recipients, lines.Err()
}

// ParseIdentities parses age identities, as age-keygen writes them.
func ParseIdentities(r io.Reader) ([]age.Identity, error) {
	identities, err := age.ParseIdentities(r)
	if err != nil {
		return nil, errors.New("it is not a file of age identities, whose lines begin with AGE-SECRET-KEY-") // the error may quote a secret
	}
	return identities, nil
}

// encryption encrypts files for recipients.
type encryption struct {
	recipients []age.Recipient
	texts      []string // sorted
}

func newEncryption(recipients []Recipient) encryption {
	var e encryption
	slices.SortFunc(recipients, func(a, b Recipient) int { return cmp.Compare(a.Text, b.Text) })
	for _, r := range slices.CompactFunc(recipients, func(a, b Recipient) bool { return a.Text == b.Text }) {
		e.recipients, e.texts = append(e.recipients, r.Recipient), append(e.texts, r.Text)
	}
	return e
}

func (e encryption) enabled() bool { return len(e.recipients) > 0 }

// id identifies the recipients in names of files.
func (e encryption) id() string {
	sum, _ := stores.SumOf(strings.NewReader(strings.Join(e.texts, "\n")))
	return sum[:8]
}

// encrypt writes the encrypted content of r.
func (e encryption) encrypt(w io.Writer, r io.Reader) error {
	out, err := age.Encrypt(w, e.recipients...)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, r); err != nil {
		return err
	}
	return out.Close()
}

// ErrNoIdentity reports that a backup is encrypted and none of the identities can decrypt it.
var ErrNoIdentity = errors.New("the backup is encrypted")

// decrypt returns the plain content of r.
func decrypt(r io.Reader, m *Manifest, identities []age.Identity) (io.Reader, error) {
	if !m.Encrypted() {
		return r, nil
	}
	hint := fmt.Errorf("%w for %s; give the file of a matching age identity with --identity", ErrNoIdentity, strings.Join(m.Recipients, ", "))
	if len(identities) == 0 {
		return nil, stores.Final(hint)
	}
	plain, err := age.Decrypt(r, identities...)
	if mismatch := (*age.NoIdentityMatchError)(nil); errors.As(err, &mismatch) {
		return nil, stores.Final(hint)
	}
	return plain, err
}
