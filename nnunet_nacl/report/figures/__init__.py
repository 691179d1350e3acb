"""The report's figures. Each is a function of its data and the axes to draw on; ``nnunet_nacl.report`` exports them."""
