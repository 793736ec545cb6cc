package wording

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// At returns a position in parentheses, to be appended to a message.
func At(position string) string {
	if position == "" {
		return ""
	}
	return " (" + position + ")"
}

// Cut returns the first characters of a text, and … if it has more.
func Cut(text string, most int) string {
	n := 0
	for i := range text {
		if n == most {
			return text[:i] + "…"
		}
		n++
	}
	return text
}

// Unquoted returns a quoted string without its quotes, and other text unchanged.
func Unquoted(text string) string {
	if s, err := strconv.Unquote(text); err == nil {
		return s
	}
	return text
}

// Nearest returns the candidate most similar to a misspelled name, or "" if none is similar. It
// compares the words that differ, ignoring case; one letter in three may be wrong. Among equals it
// returns the first in the alphabet.
func Nearest(name string, candidates []string) string {
	found, least := "", 0
	for _, c := range candidates {
		if c == "" || c == name {
			continue
		}
		a, b := difference(strings.ToLower(name), strings.ToLower(c))
		d := Distance(a, b)
		if d > max(len(a), len(b))/3 {
			continue
		}
		if found == "" || cmp.Or(cmp.Compare(d, least), cmp.Compare(c, found)) < 0 {
			found, least = c, d
		}
	}
	return found
}

// difference returns two names without their common first and last words: "scale" and "status" for
// "widgets/scale" and "widgets/status".
func difference(a, b string) (string, string) {
	const separators = "/:."
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	i = strings.LastIndexAny(a[:i], separators) + 1
	a, b = a[i:], b[i:]
	i = 0
	for i < min(len(a), len(b)) && a[len(a)-1-i] == b[len(b)-1-i] {
		i++
	}
	if j := strings.IndexAny(a[len(a)-i:], separators); j >= 0 {
		i -= j
		a, b = a[:len(a)-i], b[:len(b)-i]
	}
	return a, b
}

// Distance returns the number of letters to insert, remove, replace or swap with the next one to
// turn a into b (Damerau-Levenshtein), where each letter is changed once.
func Distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := range x {
		row[0] = i + 1
		for j := range y {
			changed := 1
			if x[i] == y[j] {
				changed = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+changed)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}

// DidYouMean returns the hint for a wrong name: the nearest correct name, or else the list of
// candidates.
func DidYouMean(name string, candidates []string, otherwise string) string {
	if near := Nearest(name, candidates); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if len(candidates) == 0 || otherwise == "" {
		return ""
	}
	return otherwise + " " + Enumerate(Quoted(candidates))
}

// maxEnumerated is the number of words shown of a long list.
const maxEnumerated = 8

// Enumerate joins words; of a long list it shows only the first.
func Enumerate(words []string) string {
	if n := len(words) - maxEnumerated; n > 1 {
		return strings.Join(words[:maxEnumerated], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(words, ", ")
}

// EnumerateAll joins words. It shows them all up to a number that fits on a few lines.
func EnumerateAll(words []string) string {
	const most = 24
	if len(words) > most {
		return Enumerate(words)
	}
	return strings.Join(words, ", ")
}

// Quoted returns the words in quotes.
func Quoted(words []string) []string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(w)
	}
	return quoted
}
