// Package signers makes SSH signatures, and verifies them by files of allowed signers, as ssh-keygen and git do: see ALLOWED SIGNERS
// in ssh-keygen(1). It needs neither program.
package signers

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// File is the allowed signers of a file. It is immutable.
type File struct {
	path    string
	signers []signer
}

// signer is a line of the file.
type signer struct {
	principals    string
	key           ssh.PublicKey
	namespaces    []string  // nil for all
	after, before time.Time // zero for no bound
	line          int
}

// Read reads a file of allowed signers. Lines with certificate authorities are refused, because certificates are not
// verified.
func Read(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := &File{path: path}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		s, err := parse(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, number, err)
		}
		s.line = number
		f.signers = append(f.signers, s)
	}
	if len(f.signers) == 0 {
		return nil, fmt.Errorf("%s has no signers; a line is: NAME KEYTYPE KEY", path)
	}
	return f, nil
}

// parse parses a line: principals, options, and a key.
func parse(line string) (s signer, err error) {
	if rest, quoted := strings.CutPrefix(line, `"`); quoted {
		principals, after, ok := strings.Cut(rest, `"`)
		if !ok {
			return s, errors.New("the quotation mark before the principals has no end")
		}
		s.principals, line = principals, strings.TrimSpace(after)
	} else {
		principals, after, _ := strings.Cut(strings.Replace(line, "\t", " ", 1), " ")
		s.principals, line = principals, strings.TrimSpace(after)
	}
	key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil {
		return s, fmt.Errorf("want principals, options and a public key: %w", err)
	}
	s.key = key
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		value = strings.Trim(value, `"`)
		switch strings.ToLower(name) {
		case "namespaces":
			s.namespaces = strings.Split(value, ",")
			for _, n := range s.namespaces {
				if n = strings.TrimSpace(n); n != "*" && strings.ContainsAny(n, "!*?") {
					err = fmt.Errorf("the namespace %q: patterns are not supported, apart from *", n)
				}
			}
		case "valid-after":
			s.after, err = parseTime(value)
		case "valid-before":
			s.before, err = parseTime(value)
		case "cert-authority":
			err = errors.New("cert-authority is not supported; name the keys themselves")
		default:
			err = fmt.Errorf("unknown option %q", name)
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// parseTime parses a time as ssh-keygen does: YYYYMMDD or YYYYMMDDHHMM[SS], in the local time zone unless Z follows.
func parseTime(text string) (time.Time, error) {
	digits, utc := strings.CutSuffix(text, "Z")
	in := time.Local
	if utc {
		in = time.UTC
	}
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if len(digits) == len(layout) {
			return time.ParseInLocation(layout, digits, in)
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time: want YYYYMMDD or YYYYMMDDHHMM[SS], with Z for UTC", text)
}

// Verify verifies an armored signature over a message, and returns the principals of the key. The key must be allowed
// for the namespace at the time.
func (f *File) Verify(message, armored []byte, namespace string, at time.Time) (principals string, err error) {
	signature, err := sshsig.Unarmor(armored)
	if err != nil {
		return "", fmt.Errorf("its signature cannot be read: %w", err)
	}
	print := ssh.FingerprintSHA256(signature.PublicKey)
	why := fmt.Errorf("it is signed with key %s, which %s does not allow", print, f.path)
	for _, s := range f.signers {
		if !bytes.Equal(s.key.Marshal(), signature.PublicKey.Marshal()) {
			continue
		}
		if err := s.allows(namespace, at); err != nil {
			why = fmt.Errorf("it is signed with key %s of %s, which %s:%d %w", print, s.principals, f.path, s.line, err)
			continue
		}
		if err := sshsig.Verify(bytes.NewReader(message), signature, s.key, signature.HashAlgorithm, namespace); err != nil {
			return "", fmt.Errorf("its signature with key %s of %s does not fit: %w", print, s.principals, err)
		}
		return s.principals, nil
	}
	return "", why
}

// allows returns why the key is not allowed for a namespace at a time; nil if it is.
func (s *signer) allows(namespace string, at time.Time) error {
	switch {
	case s.namespaces != nil && !matches(s.namespaces, namespace):
		return fmt.Errorf("allows for %s only, not for %s", strings.Join(s.namespaces, ","), namespace)
	case !s.after.IsZero() && at.Before(s.after):
		return fmt.Errorf("allows from %s on", s.after.Format(time.RFC3339))
	case !s.before.IsZero() && !at.Before(s.before):
		return fmt.Errorf("allowed until %s", s.before.Format(time.RFC3339))
	}
	return nil
}

// matches reports whether a list has a name, or a pattern that is just *.
func matches(list []string, name string) bool {
	for _, x := range list {
		if x = strings.TrimSpace(x); x == name || x == "*" {
			return true
		}
	}
	return false
}

// Commit splits the text of a git commit into what is signed, and its armored SSH signature.
func Commit(text []byte) (message, armored []byte, err error) {
	head, body, found := bytes.Cut(text, []byte("\n\n"))
	if !found {
		return nil, nil, errors.New("it is not a commit")
	}
	var kept, signature []byte
	signatures, within := 0, false
	for line := range bytes.Lines(append(head, '\n')) {
		if line[0] != ' ' {
			name, value, _ := bytes.Cut(line, []byte(" "))
			if within = string(name) == "gpgsig" || string(name) == "gpgsig-sha256"; within {
				signatures++
				signature = append(signature, value...)
				continue
			}
		} else if within {
			signature = append(signature, line[1:]...)
			continue
		}
		kept = append(kept, line...)
	}
	switch {
	case signatures == 0:
		return nil, nil, errors.New("it is not signed")
	case signatures > 1:
		return nil, nil, errors.New("it has several signatures")
	case !bytes.HasPrefix(signature, []byte("-----BEGIN "+sshsig.PEMType)):
		return nil, nil, errors.New("it is not signed with an SSH key, and other signatures are not verified")
	}
	return append(append(kept, '\n'), body...), signature, nil
}
