package difference

import "stele.dev/stele/schemas"

// Correspond returns pairs of indexes of the same item in two states of a list, as [Between] matches items. The second
// indexes ascend.
func Correspond(from, to []any, n *schemas.Node) (pairs [][2]int) {
	before, ok1 := Keyed(from, n)
	after, ok2 := Keyed(to, n)
	if ok1 && ok2 {
		at := make(map[string]int, len(from))
		for i, s := range before {
			at[Path{s}.String()] = i
		}
		for j, s := range after {
			if i, ok := at[Path{s}.String()]; ok {
				pairs = append(pairs, [2]int{i, j})
			}
		}
		return pairs
	}
	return align(from, to)
}
