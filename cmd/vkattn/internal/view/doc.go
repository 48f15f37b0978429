// Package view is what vkattn's viewer knows without a window or a device: what is looked at, which keys and what of the mouse change it,
// where everything stands, what must be computed again, and the picture as a list of rectangles, letters and maps that a shader draws.
//
// A State belongs to one goroutine. Nothing here calls Vulkan; cmd/vkattn/internal/view/render draws, and cmd/vkattn/internal/view/window
// shows.
package view
