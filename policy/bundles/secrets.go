package bundles

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"stele.dev/stele/schemas"
)

// Everybody who may read policies can read a bundle, and the log keeps it for ever. So text that is
// certainly a secret is rejected anywhere in a file, and never shown.

// secret is a span of text that is a secret.
type secret struct {
	what       string
	start, end int
}

// shapes are the patterns of secrets that match almost nothing else.
var shapes = []struct {
	what    string
	pattern *regexp.Regexp
	certain func([]byte) bool // checks a match; nil: every match is a secret
}{
	{"a JSON web token", regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{16,}`), isToken},
	{"an access key of AWS", regexp.MustCompile(`AKIA[A-Z2-7]{16}`), func(b []byte) bool {
		return !bytes.HasSuffix(b, []byte("EXAMPLE")) // an example of AWS' documentation
	}},
	{"a token of GitHub", regexp.MustCompile(`gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}`), nil},
	{"a token of Slack", regexp.MustCompile(`xox[abeoprs]-[0-9]{8,}-[A-Za-z0-9-]{16,}`), nil},
	{"an API key of Google", regexp.MustCompile(`AIza[A-Za-z0-9_-]{35}`), nil},
}

// privateKey matches the header of a PEM key and the start of its content. Between the two there may
// be comment markers or quotes.
var privateKey = regexp.MustCompile(`-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:\\+[nrt]|[\s/"+]|[A-Za-z-]+: [^\n\\]*)*[A-Za-z0-9+/]{20}`)

var privateKeyEnd = regexp.MustCompile(`-----END [A-Z0-9 ]*-----`)

// isToken reports whether a token has a JSON header with an algorithm, as JWTs have.
func isToken(b []byte) bool {
	head, _, _ := bytes.Cut(b, []byte("."))
	var header struct {
		Algorithm string `json:"alg"`
	}
	data, err := base64.RawURLEncoding.DecodeString(string(head))
	return err == nil && json.Unmarshal(data, &header) == nil && header.Algorithm != ""
}

// secretsIn returns the secrets in a text, in order.
func secretsIn(text []byte) (found []secret) {
	for _, m := range privateKey.FindAllIndex(text, -1) {
		end := len(text)
		if e := privateKeyEnd.FindIndex(text[m[1]:]); e != nil {
			end = m[1] + e[1]
		}
		found = append(found, secret{"a private key", m[0], end})
	}
	for _, shape := range shapes {
		for _, m := range shape.pattern.FindAllIndex(text, -1) {
			alone := (m[0] == 0 || !isWord(text[m[0]-1])) && (m[1] == len(text) || !isWord(text[m[1]]))
			if alone && (shape.certain == nil || shape.certain(text[m[0]:m[1]])) {
				found = append(found, secret{shape.what, m[0], m[1]})
			}
		}
	}
	slices.SortFunc(found, func(a, b secret) int { return a.start - b.start })
	return found
}

func isWord(b byte) bool {
	return b == '_' || b >= '0' && b <= '9' || b >= 'A' && b <= 'Z' || b >= 'a' && b <= 'z'
}

// Secrets reports the secrets in the source's files.
func (s *Source) Secrets() (found schemas.Diagnostics) {
	for _, f := range s.Files {
		end := 0
		for _, s := range secretsIn(f.Data) {
			if s.start < end {
				continue // inside the previous secret
			}
			end = s.end
			before := f.Data[:s.start]
			found = append(found, schemas.Diagnostic{Pos: schemas.Position{File: f.Path, Line: bytes.Count(before, []byte("\n")) + 1, Column: s.start - bytes.LastIndexByte(before, '\n')},
				Message: s.what + " stands here", Hint: "name a secret instead, and replace this one: it may be in the repository's history"})
		}
	}
	return found
}

// Mask returns the text with its secrets masked. Its length and its lines stay the same.
func Mask(text string) string {
	found := secretsIn([]byte(text))
	if len(found) == 0 {
		return text
	}
	masked := []byte(text)
	for _, s := range found {
		for i := s.start; i < s.end; i++ {
			if masked[i] != '\n' {
				masked[i] = '*'
			}
		}
	}
	return string(masked)
}

// Line returns the line at a position, with secrets masked, for messages. It returns "" if there is
// no such line.
func (s *Source) Line(pos schemas.Position) string {
	i := slices.IndexFunc(s.Files, func(f File) bool { return f.Path == pos.File })
	if i < 0 || pos.Line < 1 {
		return ""
	}
	lines := strings.SplitN(Mask(string(s.Files[i].Data)), "\n", pos.Line+1)
	if len(lines) < pos.Line {
		return ""
	}
	return strings.TrimSuffix(lines[pos.Line-1], "\r")
}
