// Package top is `stele top` and `stele top flows`: what a server does now, from its metrics, and who uses its seats.
package top
