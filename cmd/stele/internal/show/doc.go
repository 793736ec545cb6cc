// Package show prints what commands have found: tables, differences, changes, and documents for programs. It also starts
// the pager, and chooses colors.
package show
