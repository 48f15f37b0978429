// Package window shows what cmd/vkattn/internal/view/render draws, in a window of GLFW's. It is built with the tag view: GLFW needs headers
// of the window system, which a plain build does without.
package window
