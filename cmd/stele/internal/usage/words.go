package usage

import (
	"fmt"
	"strings"
)

// Quote returns a word quoted for a shell, if necessary.
func Quote(word string) string {
	if strings.ContainsAny(word, " \t\"'$") {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}

// Enumerate joins words for a sentence: "a, b or c".
func Enumerate(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// Count returns a number with its noun: "1 object", "2 objects".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
