// Package plugincheck has the commands that check, test and measure plugins.
package plugincheck
